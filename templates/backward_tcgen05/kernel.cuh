// Attention backward in one pass with TMA, tcgen05 and tensor memory, for sm_100a and sm_103a, after FlashAttention-4's
// backward of one block. A block owns a tile of 128 keys at a time and walks through the tiles of 128 queries that see them,
// those of all heads that share the keys: dK and dV are sums in tensor memory, and dQ of each step is added to sums in global
// memory, which convert_dq.cuh rounds in the end. backward/prepare.cuh runs before: the producer alone waits for it.
//
//     warps 0–7     scores      P of S, dS of dP; dK and dV in the end     score_warps.cuh
//     warps 8–11    dQ          from tensor memory to shared memory        dq_warps.cuh
//     warp 12       products    all of them                                mma.cuh
//     warp 13       producer    K, V, Q, dO, LSE, delta                    backward/tile_producer.cuh
//     warp 14       adder       dQ to the sums of all blocks               backward/dq_adder.cuh
//     warp 15       waiter      for turns, with deterministic sums         backward/turn_waiter.cuh
#pragma once

#include "backward/dq_adder.cuh"
#include "backward/key_tile_scheduler.cuh"
#include "backward/tile_loads.cuh"
#include "backward/tile_producer.cuh"
#include "backward/turn_waiter.cuh"
#include "backward_tcgen05/dq_warps.cuh"
#include "backward_tcgen05/mma.cuh"
#include "backward_tcgen05/pipelines.cuh"
#include "backward_tcgen05/score_warps.cuh"
#include "backward_tcgen05/traits.cuh"
#include "base/gradient_params.cuh"
#include "base/params.cuh"
#include "problem/masks.cuh"
#include "problem/scores.cuh"
#include "tiles/tile_copy.cuh"

namespace jit::backward_tcgen05 {

/// `Maps` are TensorMaps or SequenceMaps.
template <class Config, class Maps>
JIT_DEVICE void attention_backward(const AttentionParams& params, const GradientParams& gradients,
                                   const Maps& maps) {
  using Traits = KernelTraits<Config>;
  using Pipelines = backward_tcgen05::Pipelines<Config>;
  constexpr int mma_warp = score_warps + dq_warps;
  extern __shared__ __align__(1024) unsigned char memory[];
  const unsigned smem = smem_address(memory);
  const unsigned tmem_place = smem + Traits::layout.tmem_address;
  const int warp = uniform(threadIdx.x / warp_size);
  if (threadIdx.x == 0) init_pipelines<Config>(smem);
  if (warp == mma_warp) {
    tcgen05_alloc<tmem_columns>(tmem_place);
    tcgen05_relinquish_alloc_permit();
  }
  tcgen05_fence_before();
  __syncthreads();
  tcgen05_fence_after();
  const unsigned tmem = static_cast<unsigned>(load_shared(tmem_place));
  if (warp < score_warps) {
    setmaxnreg_inc<Config::score_registers>();
    ScoreWarp<Config>(params, gradients, smem, tmem).run();
  } else if (warp < mma_warp) {
    setmaxnreg_dec<Config::dq_registers>();
    DqWarp<Config>(smem, tmem).run(params);
  } else {
    setmaxnreg_dec<Config::producer_registers>();
    const Turns& turns = maps.schedule.turns;
    switch (warp - mma_warp) {
      case 0:
        MmaWarp<Config>(smem, tmem).run(params);
        break;
      case 1:
        load_key_tiles<TileLoads<Pipelines, Maps>, Pipelines>(
            params, gradients, maps, KeyTileScheduler<Config>(params, maps.schedule), smem);
        break;
      case 2:
        add_dq<Pipelines>(
            params, gradients, turns, 0,
            [](int) {
              return PanelRange{0, Traits::dq_parts};
            },
            smem);
        break;
      default:
        if constexpr (Config::deterministic) wait_for_turns<Pipelines>(params, turns, smem);
    }
  }
  tcgen05_fence_before();
  __syncthreads();
  tcgen05_fence_after();
  // mutate: ColumnsOfSumsKept
  if (uniform(reread_thread_index() / warp_size) == mma_warp) tcgen05_dealloc<tmem_columns>(tmem);
}

}  // namespace jit::backward_tcgen05
