// What keys of 8 bits are multiplied by where each, or each block, has a scale of its own.
#pragma once

#include "base/descale_params.cuh"
#include "base/prelude.cuh"
#include "problem/sequences.cuh"
#include "scheduling/work_tiles.cuh"
#include "steps/block_factors.cuh"
#include "tiles/shared_words.cuh"

namespace jit::forward_wgmma {

/// Leaves the scales of a tile's keys at a shared address. By a whole warp.
template <class Config>
__device__ __forceinline__ void leave_key_scales(const DescaleParams& descale, const WorkTile& work,
                                                 const Sequence& sequence, int k_begin, unsigned target) {
  const TensorStrides& strides = descale.k_strides;
  const float* const of_head =
      descale.k + work.batch * strides.batch + work.head / Config::gqa_ratio * strides.head;
  if constexpr (has_block_scales<Config>) {
    constexpr int keys = keys_of_factor(Config::tile_kv);
    if (const int i = lane_id(); i < Config::tile_kv / keys) {
      const int block = minimum(k_begin + i * keys, sequence.length - 1) / scale_block_rows;
      store_shared(target + i * 4, __float_as_int(of_head[block * strides.seq]));
    }
    return;
  }
#pragma unroll
  for (int i = lane_id(); i < Config::tile_kv; i += warp_size) {
    const int key = minimum(k_begin + i, sequence.length - 1);
    store_shared(target + i * 4, __float_as_int(of_head[(sequence.begin + key) * strides.seq]));
  }
}

}  // namespace jit::forward_wgmma
