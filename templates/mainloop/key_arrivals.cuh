// Waits for keys that arrive while the kernel runs. Other devices copy them; after each copy they write the epoch of
// the call to a word. Words arrive nearly in order, so a block remembers how many of the first ones it has seen.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "mainloop/arrival_fault.cuh"
#include "mainloop/arrival_table.cuh"
#include "ptx/bulk_copy.cuh"
#include "ptx/system.cuh"
#include "ptx/warpgroup.cuh"

namespace jit {

/// The arrival table in tensor slot `slot`. Its numbers are clamped: none leads outside of the tensor. By a whole warp.
template <int slot>
class KeyArrivals {
 public:
  JIT_DEVICE explicit KeyArrivals(const AttentionParams& params) : table_(params.tensors[slot]) {}

  JIT_DEVICE int pieces() const {
    return clamped(__ldg(&header()->pieces), table_.rows - arrival_header_rows);
  }
  JIT_DEVICE ArrivalPiece piece(int i) const {
    const int4 piece = __ldg(static_cast<const int4*>(table_.data) + arrival_header_rows + i);
    return {piece.x, piece.y, piece.z, piece.w};
  }

  JIT_DEVICE ArrivalGranule granule(int i) const {
    const int first = clamped(__ldg(&header()->granules_at), table_.rows - 1);
    const int2 granule =
        __ldg(static_cast<const int2*>(table_.data) + 2 * first + clamped(i, 2 * (table_.rows - first) - 1));
    return {granule.x, granule.y};
  }
  JIT_DEVICE int granules() const { return __ldg(&header()->granules); }
  JIT_DEVICE int own_granules() const { return __ldg(&header()->own_granules); }

  /// Waits until the first `count` words hold the epoch. False if this wait, or one of another block, has timed out.
  JIT_DEVICE bool wait(int count) { return count <= seen_ || wait_for(count); }

  /// Waits for all words again. When a call ends, every device has begun it, no device still writes to its keys, and
  /// none has begun the next call that writes there, as one whose wait for this device timed out might have.
  JIT_DEVICE bool finish() {
    seen_ = 0;
    return pieces() == 0 || wait(0x7fffffff);
  }

 private:
  JIT_DEVICE bool wait_for(int count) {
    const unsigned epoch = __ldg(&header()->epoch);
    const int first = arrival_header_rows + pieces(),
              words = clamped(__ldg(&header()->words), (table_.rows - first) * 2);
    const int wanted = minimum(count, words), peers = __ldg(&header()->peers);
    const unsigned half = __ldg(&header()->half) == 2 ? 1 : 0;
    const unsigned* const behind_pieces = static_cast<const unsigned*>(table_.data) + first * 4;
    const auto word_at = [&](int i) {
      return behind_pieces +
             clamped(arrival_word(i, words, peers, epoch, half), maximum(0, (table_.rows - first) * 4 - 1));
    };
    unsigned long long begin = 0;
    while (seen_ < wanted) {
      const int word = seen_ + lane_id();
      bool is_here = word < words;
      if (is_here) is_here = load_acquire_sys(word_at(word)) == epoch;  // mutate: ArrivalOfAnyEpoch
      const unsigned missing = ~__ballot_sync(full_warp, is_here);
      seen_ += missing == 0 ? warp_size : __ffs(static_cast<int>(missing)) - 1;  // mutate: ArrivalsUnseen
      if (seen_ < wanted && missing != 0 && is_over(word_at(seen_), epoch, begin)) return false;
    }
    __syncwarp();         // lanes have acquired what one of them loads
    fence_proxy_async();  // mutate: ArrivalsByTma
    return true;
  }

  // Whether a wait since `begin` has timed out.
  JIT_DEVICE bool is_over(const unsigned* word, unsigned epoch, unsigned long long& begin) const {
    int is_over = 0;
    if (lane_id() == 0)
      is_over = has_timed_out(*shared(), __ldg(&header()->timeout), word, seen_, epoch, begin);
    return uniform(is_over) != 0;
  }

  JIT_DEVICE const ArrivalHeader* header() const { return static_cast<const ArrivalHeader*>(table_.data); }
  JIT_DEVICE ArrivalHeader* shared() const { return const_cast<ArrivalHeader*>(header()); }
  static JIT_DEVICE int clamped(int x, int most) { return maximum(0, minimum(x, most)); }

  const FunctorTensor& table_;
  int seen_ = 0;
};

}  // namespace jit
