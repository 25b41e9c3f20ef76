// Ranges of the words of adjacent keys, for all keys of a launch. A block computes them once, at its start, and then
// knows which tiles of keys a tile of queries may see without reading global memory.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "problem/functor.cuh"
#include "problem/masks.cuh"
#include "problem/sequences.cuh"
#include "scheduling/work_tiles.cuh"
#include "tiles/shared_words.cuh"

namespace jit {

/// A table in shared memory with one range per batch entry of the launch and piece of keys. A piece is one tile of
/// keys, or 2, 4, 8 … if the table would otherwise be too small; work_order.cpp chooses at most as many batch entries
/// per launch as the table has places. Blocks that compute one work tile have no table, as filling it would cost too
/// much; neither have sequences that differ in length.
template <class Traits>
class KeyWordRanges {
  using Config = typename Traits::Config;

 public:
  static constexpr bool is_used = Traits::has_key_word_ranges;

  JIT_DEVICE KeyWordRanges(const AttentionParams& params, const TileSchedule& schedule, unsigned smem)
      : params_(params), table_(smem + Traits::layout.key_word_ranges) {
    if constexpr (is_used) {
      const int batch_count = schedule.order.slices / params.heads_q;
      while (batch_count * pieces() > key_word_range_places) ++shift_;
    }
  }

  /// Pieces of a batch entry (of the longest one, if lengths differ).
  JIT_DEVICE int pieces() const {
    const int seqlen_kv = DenseSequences<Config>::longest_kv(params_);
    return seqlen_kv == 0 ? 0 : piece_of(seqlen_kv - 1) + 1;
  }
  JIT_DEVICE int keys_of_piece() const { return Config::tile_kv << shift_; }
  JIT_DEVICE int piece_of(int k) const { return k / Config::tile_kv >> shift_; }

  JIT_DEVICE WordRange range(int batch, int piece) const {
    int words[2];
    load_shared(words, place(batch, piece));
    return {words[0], words[1]};
  }

  /// By all warps of a block, before the __syncthreads behind which the table is read.
  JIT_DEVICE void fill(const TileSchedule& schedule) const {
    const int seqlen_kv = DenseSequences<Config>::longest_kv(params_);
    const int pieces_of_entry = pieces();
    const int count = schedule.order.slices / params_.heads_q * pieces_of_entry;
    constexpr int warps = Traits::threads / warp_size;
    // Pieces of several warps' turns at once, and keys of each: their loads are in flight together.
    constexpr int at_once = 4, loads = 4;
#pragma unroll 1
    for (int first = warp_id(); first < count; first += at_once * warps) {
      WordRange own[at_once];
#pragma unroll
      for (int turn = 0; turn < at_once; ++turn) own[turn] = {0x7fffffff, -0x7fffffff - 1};
#pragma unroll 1
      for (int from = lane_id(); from < keys_of_piece(); from += loads * warp_size) {
        int words[at_once][loads];
#pragma unroll
        for (int turn = 0; turn < at_once; ++turn) {
          const int i = minimum(first + turn * warps, count - 1);
          // mutate: RangesOfTheFirstBatchEntry
          const int batch = params_.batch_begin + i / pieces_of_entry,
                    begin = i % pieces_of_entry * keys_of_piece();
          const typename Config::Mask mask(BlockContext{batch, 0, params_.heads_q,
                                                        DenseSequences<Config>::longest_q(params_), seqlen_kv,
                                                        0, params_.tensors});
          const int last = minimum(begin + keys_of_piece(), seqlen_kv) - 1;
#pragma unroll
          for (int load = 0; load < loads; ++load)
            words[turn][load] = mask.key_word(minimum(begin + from + load * warp_size, last));
        }
#pragma unroll
        for (int turn = 0; turn < at_once; ++turn) {
#pragma unroll
          for (int load = 0; load < loads; ++load) {
            own[turn].low = minimum(own[turn].low, words[turn][load]);
            own[turn].high = maximum(own[turn].high, words[turn][load]);
          }
        }
      }
#pragma unroll
      for (int turn = 0; turn < at_once; ++turn) {
        const int i = first + turn * warps;
        const int low = __reduce_min_sync(full_warp, own[turn].low);
        const int high = __reduce_max_sync(full_warp, own[turn].high);
        if (i < count && lane_id() == 0) {
          const unsigned target = table_ + i * static_cast<int>(sizeof(WordRange));
          store_shared(target, low);
          store_shared(target + 4, high);
        }
      }
    }
  }

 private:
  JIT_DEVICE unsigned place(int batch, int piece) const {
    return table_ + ((batch - params_.batch_begin) * pieces() + piece) * static_cast<int>(sizeof(WordRange));
  }

  const AttentionParams& params_;
  unsigned table_;
  int shift_ = 0;  // a piece is 2^shift tiles
};

}  // namespace jit
