// The ranges that the words of neighbouring keys lie in, for all keys of a launch: a block finds them once,
// at its start, and then knows which tiles of keys a tile of queries may see without reading global memory.
#pragma once

#include "block_place.cuh"
#include "forward_traits_sm90.cuh"
#include "functor.cuh"
#include "masks.cuh"
#include "params.cuh"
#include "prelude.cuh"
#include "shared_words.cuh"
#include "smem_layout_sm90.cuh"
#include "tensor_map.cuh"

namespace jit {

/// A table in shared memory: for each batch entry of the launch, one range for each piece of keys. A piece is
/// a tile of keys, or 2, 4, 8 … of them, as many as it takes for the table to hold all. With more batch
/// entries than places there is no table, and none in blocks that compute one work tile, for which it would
/// be too much to read.
template <class Config>
class KeyWordRanges {
  using Traits = ForwardTraitsSm90<Config>;

 public:
  static constexpr bool is_used = Traits::has_key_words && Config::persistent;

  __device__ __forceinline__ KeyWordRanges(const AttentionParams& params, const TensorMaps& maps,
                                           unsigned smem)
      : table_(smem + Traits::layout.key_word_ranges),
        batch_begin_(params.batch_begin),
        batch_count_(maps.order.slices / params.heads_q) {
    if constexpr (is_used) {
      const int tiles = (seqlen_kv_of<Config>(params) + Config::tile_kv - 1) / Config::tile_kv;
      if (batch_count_ > key_word_ranges) return;
      do {
        ++shift_;
        pieces_ = (tiles + (1 << shift_) - 1) >> shift_;
      } while (batch_count_ * pieces_ > key_word_ranges);
    }
  }

  __device__ __forceinline__ bool is_there() const { return pieces_ > 0; }
  /// Pieces of a batch entry.
  __device__ __forceinline__ int pieces() const { return pieces_; }
  __device__ __forceinline__ int keys_of_piece() const { return Config::tile_kv << shift_; }
  __device__ __forceinline__ bool is_piece_a_tile() const { return shift_ == 0; }
  __device__ __forceinline__ int piece_of(int k) const { return k / Config::tile_kv >> shift_; }

  __device__ __forceinline__ WordRange range(int batch, int piece) const {
    int words[2];
    load_shared(words, place(batch, piece));
    return {words[0], words[1]};
  }

  /// By all warps of a block, before the __syncthreads behind which the table is read.
  __device__ __forceinline__ void fill(const AttentionParams& params) const {
    const int seqlen_kv = seqlen_kv_of<Config>(params);
#pragma unroll 1
    for (int i = warp_id(); i < batch_count_ * pieces_; i += Traits::threads / warp_size) {
      const int batch = batch_begin_ + i / pieces_, piece = i % pieces_;
      const typename Config::Mask mask(
          {batch, 0, params.heads_q, seqlen_q_of<Config>(params), seqlen_kv, params.tensors});
      const int begin = piece * keys_of_piece();
      const WordRange range = word_range(begin, minimum(begin + keys_of_piece(), seqlen_kv),
                                         [&](int k) { return mask.key_word(k); });
      if (lane_id() == 0) {
        store_shared(place(batch, piece), range.low);
        store_shared(place(batch, piece) + 4, range.high);
      }
    }
  }

 private:
  __device__ __forceinline__ unsigned place(int batch, int piece) const {
    return table_ + ((batch - batch_begin_) * pieces_ + piece) * static_cast<int>(sizeof(WordRange));
  }

  unsigned table_;
  int batch_begin_;
  int batch_count_;
  int shift_ = -1;  // a piece is 2^shift tiles
  int pieces_ = 0;
};

}  // namespace jit
