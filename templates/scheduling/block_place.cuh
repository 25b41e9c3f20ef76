// Which tile of queries a block computes where each block has one.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "scheduling/work_tiles.cuh"

namespace jit {

/// The tile of this block in a grid of (heads, query tiles, batch). Later queries see more keys under most
/// masks: the blocks of all heads start with them, which leaves the short blocks for the end, when they even
/// out what each multiprocessor has to do. Computed anew at each call, so that a kernel need not keep it in
/// registers through its main loop; without a division, so that it stays in uniform registers.
template <int tile_q>
__device__ __forceinline__ WorkTile block_tile(const AttentionParams& params, int seqlen_q) {
  const int tiles_q = (seqlen_q + tile_q - 1) / tile_q;
  return {.batch = params.batch_begin + static_cast<int>(blockIdx.z),
          .head = static_cast<int>(blockIdx.x),
          .q_begin = (tiles_q - 1 - params.q_tile_begin - static_cast<int>(blockIdx.y)) * tile_q};
}

}  // namespace jit
