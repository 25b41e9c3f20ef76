// The rings of a block where TMA copies tiles.
//
//             filled by        read by    empty when
//     parts   the loader       consumers  each of their lanes says so
//     stages  the loader: TMA  consumers  each of their warps says so
#pragma once

#include "base/prelude.cuh"
#include "forward_split_kv/traits.cuh"
#include "ptx/mbarrier.cuh"
#include "split_keys/part_ring.cuh"
#include "tiles/tile_ring.cuh"

namespace jit::forward_split_kv {

/// One side's place among the stages.
template <class Config>
using BoxRing = TileRing<Config::stages, KernelTraits<Config>::layout.stage_bytes>;

/// `smem` is the shared address of the block's memory.
template <class Config>
__device__ __forceinline__ BoxRing<Config> box_ring(unsigned smem) {
  constexpr auto layout = KernelTraits<Config>::layout;
  return {smem, smem + layout.full, smem + layout.empty};
}

/// By one thread, before any other use; then a __syncthreads. A stage is full when all lanes of the loader have
/// arrived, each behind its copies of queries, and once more the one that tells of bytes.
template <class Config>
__device__ __forceinline__ void init_box_rings(unsigned smem) {
  using Traits = KernelTraits<Config>;
  init_barriers(smem + Traits::layout.full, Config::stages, warp_size + 1);
  init_barriers(smem + Traits::layout.empty, Config::stages, Traits::consumer_warps);
  init_part_ring<Traits>(smem);
  fence_mbarrier_init();
}

}  // namespace jit::forward_split_kv
