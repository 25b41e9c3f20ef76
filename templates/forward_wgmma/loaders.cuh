// The warps of a wgmma kernel that load queries and store outputs, by TMA. Each walks through the work at its own pace,
// as far ahead of the multiplications as its ring has room.
#pragma once

#include "base/params.cuh"
#include "forward_wgmma/next_work.cuh"
#include "forward_wgmma/rings.cuh"
#include "forward_wgmma/sequence_dealer.cuh"
#include "forward_wgmma/tensor_maps.cuh"
#include "forward_wgmma/tile_boxes.cuh"
#include "forward_wgmma/work.cuh"
#include "forward_wgmma/work_ring.cuh"
#include "ptx/bulk_tensor.cuh"

namespace jit::forward_wgmma {

/// Loads the queries of a work tile, a box for each consumer. By a whole warp.
template <class Config, class Ring>
__device__ __forceinline__ void load_queries_of(const AttentionParams& params, const TensorMaps& maps,
                                                const Ring& ring, const Work<Config>& work) {
  using Traits = KernelTraits<Config>;
#pragma unroll 1
  for (int consumer = 0; consumer < Traits::consumers; ++consumer) {
    const auto own = q_ring_of<Config>(ring, consumer);
    own.wait_empty();
    if (lane_id() == 0) {
      load_tile<typename Traits::QTile>(
          own.tile(), q_map<Config>(maps), own.full(),
          query_box<Config>(params, work, work.q_begin + consumer * rows_per_warpgroup));
    }
  }
}

template <class Config>
__device__ __forceinline__ void load_queries(const AttentionParams& params, const TensorMaps& maps,
                                             unsigned smem) {
  WorkRing<Config> work(params, maps, smem);
  auto ring = Rings<Config>(smem).q;
  if constexpr (KernelTraits<Config>::has_lengths) {
    SequenceDealer<Config> dealer(params, maps);
    WantedWork<Config> wanted(smem);
    work.put(dealer.tile());
    while (is_work(dealer.tile())) {
      load_queries_of<Config>(params, maps, ring, dealer.tile());
      ring.advance();
      wanted.wait();
      dealer.next();
      work.put(dealer.tile());
    }
  } else {
    for (Work<Config> tile = work.take(); is_work(tile); tile = work.take()) {
      work.release();
      load_queries_of<Config>(params, maps, ring, tile);
      ring.advance();
    }
  }
}

template <class Config>
__device__ __forceinline__ void store_outputs(const AttentionParams& params, const TensorMaps& maps,
                                              unsigned smem) {
  using Traits = KernelTraits<Config>;
  WorkRing<Config> work(params, maps, smem);
  Rings<Config> rings(smem);
  for (Work<Config> tile = work.take(); is_work(tile); tile = work.take()) {
    work.release();
#pragma unroll 1
    for (int consumer = 0; consumer < Traits::consumers; ++consumer) {
      const auto own = o_ring_of<Config>(rings.o, consumer);
      own.wait_full();
      if (lane_id() == 0) {
        store_tile<typename Traits::OTile>(
            own.tile(), o_map<Config>(maps),
            query_box<Config>(params, tile, tile.q_begin + consumer * rows_per_warpgroup));
        cp_async_bulk_commit_group();
        cp_async_bulk_wait_group_read<0>();
      }
      if constexpr (Config::separate_o) {
        own.arrive_empty();
      } else {
        q_ring_of<Config>(rings.q, consumer).arrive_empty();
      }
    }
    rings.q.advance();
    rings.o.advance();
  }
}

}  // namespace jit::forward_wgmma
