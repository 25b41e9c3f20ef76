// Begins an exchange of keys on one rank: counts the call, signals its beginning to all other ranks, and copies the rank's own
// rows to their places in the whole sequence, K and V of a row side by side. Copy engines send them to other ranks from there.
//
// When a rank begins a call, its kernels of the call before have ended. Calls alternate between two halves of the buffers, and
// a call ends only when all ranks have begun it, so no rank still reads the half that the next call's copies write. A replay
// of a graph uses the half of the call before; it first waits until all ranks have begun it. Even and odd calls have signals of
// their own, so a rank that ends a call late still finds the signal of that call. The device counts calls, so that graphs can
// be replayed.
#pragma once

#include "base/prelude.cuh"
#include "key_exchange/params.cuh"
#include "mainloop/arrival_fault.cuh"
#include "pipeline/dependent_launch.cuh"
#include "ptx/system.cuh"

namespace jit {

template <class Config>
class KeyExchangeBegin {
 public:
  JIT_DEVICE explicit KeyExchangeBegin(const KeyExchangeParams& params)
      : params_(params), header_(*static_cast<ArrivalHeader*>(params.table)) {}

  JIT_DEVICE void run() {
    const bool is_first_warp = blockIdx.x == 0 && warp_id() == 0;
    bool is_half_in_use = false;
    if (is_first_warp) is_half_in_use = open();
    copy_rows();
    if (is_half_in_use) wait_for_peers();
  }

 private:
  /// Whether the half is that of the call before.
  JIT_DEVICE bool open() {
    epoch_ = header_.epoch + 1 == 0 ? 2 : header_.epoch + 1;  // 0 is no epoch: words begin so
    const bool is_half_in_use = header_.half == params_.half + 1;
    __syncwarp();
    if (lane_id() == 0) {
      header_.epoch = epoch_;  // mutate: ExchangeUncounted
      header_.half = params_.half + 1;
      header_.timeout = params_.timeout;
      header_.fault = params_.fault;
    }
    tell_peers(epoch_);
    return is_half_in_use;  // mutate: HalfInUse
  }

  /// In the word of calls of as even an epoch.
  JIT_DEVICE void tell_peers(unsigned like) const {
    for (int peer = lane_id(); peer < params_.peers; peer += warp_size)
      store_release_sys(params_.begun[peer] + like % 2 * params_.peers, epoch_);
  }

  JIT_DEVICE void copy_rows() const {
    const int blocks = (params_.rows + exchange_block_rows - 1) / exchange_block_rows;
    const int batch = static_cast<int>(blockIdx.x) / blocks;
    const int first = static_cast<int>(blockIdx.x) % blocks * exchange_block_rows;
    const int keys = params_.key_bytes / 16, vectors = keys + params_.value_bytes / 16;
    const auto at = [](const char* from, long long bytes) {
      return reinterpret_cast<const int4*>(from + bytes);
    };
    const int4* const k =
        at(params_.k, batch * params_.k_batch + static_cast<long long>(first) * params_.key_bytes);
    const int4* const v =
        at(params_.v, batch * params_.v_batch + static_cast<long long>(first) * params_.value_bytes);
    int4* const whole = reinterpret_cast<int4*>(params_.whole + batch * params_.whole_batch) +
                        static_cast<long long>(position_of(first)) * vectors;
    const int count = minimum(exchange_block_rows, params_.rows - first) * vectors;
    constexpr int ahead = 4;
    for (int begin = static_cast<int>(threadIdx.x); begin < count; begin += ahead * Config::threads) {
      int4 found[ahead];
#pragma unroll
      for (int i = 0; i < ahead; ++i) {
        const int vector = begin + i * Config::threads, row = vector / vectors, column = vector % vectors;
        if (vector >= count) continue;
        found[i] = column < keys ? k[row * keys + column] : v[row * (vectors - keys) + column - keys];
      }
#pragma unroll
      for (int i = 0; i < ahead; ++i) {
        if (begin + i * Config::threads < count) whole[begin + i * Config::threads] = found[i];
      }
    }
  }

  /// Where a row of the shard stands in the sequence.
  JIT_DEVICE int position_of(int row) const {
    const auto* const pieces = static_cast<const ArrivalPiece*>(params_.table) + arrival_header_rows;
    int piece = 0;
    for (int count = params_.own_pieces; count > 1;) {
      const int middle = count / 2;
      if (pieces[piece + middle].row <= row) {
        piece += middle;
        count -= middle;
      } else {
        count = middle;
      }
    }
    return pieces[piece].begin + row - pieces[piece].row;
  }

  /// Until all other ranks have begun the call. Where one has not in time, copies go to keys that it may still read: it finds
  /// out at the end of the call before.
  JIT_DEVICE void wait_for_peers() {
    const unsigned* const words =
        static_cast<const unsigned*>(params_.table) + (arrival_header_rows + header_.pieces) * 4;
    bool is_over = false;
    for (int i = lane_id(); i < params_.peers; i += warp_size) {
      const unsigned* const word = words + arrival_word(i, header_.words, params_.peers, epoch_, 0);
      unsigned long long begin = 0;
      while (load_acquire_sys(word) != epoch_) {
        is_over = has_timed_out(header_, params_.timeout, word, i, epoch_, begin);
        if (is_over) break;
      }
    }
    if (__any_sync(full_warp, is_over)) tell_peers(epoch_ + 1);
  }

  const KeyExchangeParams& params_;
  ArrivalHeader& header_;
  unsigned epoch_ = 0;
};

template <class Config>
JIT_DEVICE void begin_key_exchange(const KeyExchangeParams& params) {
  wait_on_dependent_grids();  // mutate: ExchangeOfGridsInFront
  launch_dependent_grids();
  KeyExchangeBegin<Config>(params).run();
}

}  // namespace jit
