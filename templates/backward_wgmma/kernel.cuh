// Attention backward in one pass with TMA and wgmma, for sm_90a. A block owns a tile of keys at a time and walks through
// the tiles of queries that see them, those of all heads that share the keys: dK and dV are sums in registers, and dQ of
// each step is added to sums in global memory, which convert_dq.cuh rounds in the end. prepare.cuh is what runs before.
#pragma once

#include "backward_wgmma/key_consumer.cuh"
#include "backward_wgmma/key_tiles.cuh"
#include "backward_wgmma/pair.cuh"
#include "backward_wgmma/pipelines.cuh"
#include "backward_wgmma/producer.cuh"
#include "backward_wgmma/query_consumer.cuh"
#include "backward_wgmma/row_consumer.cuh"
#include "backward_wgmma/value_consumer.cuh"
#include "base/dropout_params.cuh"
#include "base/gradient_params.cuh"
#include "base/params.cuh"
#include "problem/masks.cuh"
#include "problem/scores.cuh"
#include "tiles/tile_copy.cuh"

namespace jit::backward_wgmma {

/// `Maps` are TensorMaps or SequenceMaps.
template <class Config, class Maps>
__device__ __forceinline__ void attention_backward(const AttentionParams& params,
                                                   const GradientParams& gradients, const Maps& maps,
                                                   const DropoutParams& dropout = {}) {
  extern __shared__ __align__(1024) unsigned char memory[];
  const unsigned smem = smem_address(memory);
  if (threadIdx.x == 0) init_pipelines<Config>(smem);
  if constexpr (Config::pair) {  // mutate: BarriersAreNotThereYet
    meet_pair();
  } else {
    __syncthreads();
  }
  const Pipelines<Config> pipelines(smem);
  // For what was precomputed. Of those who load each waits when it must.
  if constexpr (has_dropout_mask_ahead<Config>) {
    if (threadIdx.x >= warpgroup_size) griddepcontrol_wait();
  }
  if (threadIdx.x < warpgroup_size) {
    setmaxnreg_dec<Config::producer_registers>();
    const int warp = uniform(threadIdx.x / warp_size);
    if (warp == 0) {
      load_key_tiles<Config>(params, gradients, maps, smem);
    } else {
      griddepcontrol_wait();
      help_with_dq<Config>(params, gradients, maps, warp, smem);
    }
  } else if constexpr (KernelTraits<Config>::has_query_consumer) {
    const int consumer = uniform(threadIdx.x / warpgroup_size - 1);
    if (consumer == 2) {
      setmaxnreg_dec<Config::dq_registers>();
      griddepcontrol_wait();
      const unsigned steps = for_each_key_tile<Config>(
          params, pipelines, [&](const KeyTile<Config>& keys, bool has_queries, unsigned step) {
            return QueryConsumer<Config>(params, gradients, keys, smem).run(has_queries, step);
          });
      QueryConsumer<Config>::end(smem, steps);
    } else if constexpr (KernelTraits<Config>::has_roles) {
      setmaxnreg_inc<Config::consumer_registers>();
      if (consumer == 0) {
        for_each_key_tile<Config>(params, pipelines,
                                  [&](const KeyTile<Config>& keys, bool has_queries, unsigned step) {
                                    return ValueConsumer<Config>(params, dropout, own_keys(keys), smem)
                                        .run(gradients, has_queries, step);
                                  });
      } else {
        for_each_key_tile<Config>(params, pipelines,
                                  [&](const KeyTile<Config>& keys, bool has_queries, unsigned step) {
                                    return KeyConsumer<Config>(params, dropout, own_keys(keys), smem)
                                        .run(gradients, has_queries, step);
                                  });
      }
    } else {
      setmaxnreg_inc<Config::consumer_registers>();
      for_each_key_tile<Config>(
          params, pipelines, [&](const KeyTile<Config>& keys, bool has_queries, unsigned step) {
            return RowConsumer<Config, Maps>(params, gradients, maps, dropout, keys, smem)
                .run(has_queries, step);
          });
      RowConsumer<Config, Maps>::end();
    }
  } else {
    setmaxnreg_inc<Config::consumer_registers>();
    for_each_key_tile<Config>(params, pipelines,
                              [&](const KeyTile<Config>& keys, bool has_queries, unsigned step) {
                                return RowConsumer<Config, Maps>(params, gradients, maps, dropout, keys, smem)
                                    .run(has_queries, step);
                              });
    RowConsumer<Config, Maps>::end();
  }
  if constexpr (Config::pair) meet_pair();  // mutate: ABlockEndsBeforeItsPeerIsDone
}

}  // namespace jit::backward_wgmma
