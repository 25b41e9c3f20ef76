// The rings of a block.
//
//            filled by                       read by                       empty when
//     parts  the first key loader            query loaders, consumers      each lane of theirs says so
//     Q      the query loaders, by cp.async  consumers                     each consumer warp says so
//     K      the key loaders                 consumers                     each consumer warp says so
#pragma once

#include "forward_mla_wgmma/traits.cuh"
#include "ptx/mbarrier.cuh"
#include "split_keys/part_ring.cuh"
#include "tiles/tile_ring.cuh"

namespace jit::forward_mla_wgmma {

/// One side's places in the rings.
template <class Config>
struct Rings {
  using Traits = KernelTraits<Config>;
  TileRing<1, Traits::QTile::bytes> q;
  TileRing<Config::stages, Traits::KTile::bytes> k;

  /// `smem` is the shared address of the block's memory.
  __device__ __forceinline__ explicit Rings(unsigned smem)
      : q(smem + Traits::layout.q, smem + Traits::layout.q_full, smem + Traits::layout.q_empty),
        k(smem + Traits::layout.k, smem + Traits::layout.k_full, smem + Traits::layout.k_empty) {}
};

/// By one thread, before any other use; then a __syncthreads.
template <class Config>
__device__ __forceinline__ void init_rings(unsigned smem) {
  using Traits = KernelTraits<Config>;
  init_barriers(smem + Traits::layout.q_full, 1, Traits::query_warps);
  init_barriers(smem + Traits::layout.q_empty, 1, Traits::consumer_warps);
  // mutate: FullWhenHalfOfTheRowsAreThere
  init_barriers(smem + Traits::layout.k_full, Config::stages, Traits::key_warps);
  init_barriers(smem + Traits::layout.k_empty, Config::stages, Traits::consumer_warps);
  init_part_ring<Traits>(smem);
  fence_mbarrier_init();
}

}  // namespace jit::forward_mla_wgmma
