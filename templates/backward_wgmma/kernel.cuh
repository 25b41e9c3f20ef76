// Attention backward in one pass with TMA and wgmma, for sm_90a. A block owns a tile of keys at a time and walks
// through the tiles of queries that see them, of all heads that share the keys: dK and dV are accumulated in registers,
// and dQ of each step is added to sums in global memory, which convert_dq.cuh rounds at the end. backward/prepare.cuh
// runs before; only the producer waits for it (griddepcontrol.wait). Every other warp reads its results, or adds to
// sums that it clears, only after a full barrier of a stage that the producer loaded after its wait.
#pragma once

#include "backward/dq_adder.cuh"
#include "backward/key_tiles.cuh"
#include "backward_wgmma/pair.cuh"
#include "backward_wgmma/pipelines.cuh"
#include "backward_wgmma/producer.cuh"
#include "backward_wgmma/query_consumer.cuh"
#include "backward_wgmma/role_consumers.cuh"
#include "backward_wgmma/row_consumer.cuh"
#include "backward_wgmma/traits.cuh"
#include "backward_wgmma/turn_warps.cuh"
#include "base/dropout_params.cuh"
#include "base/gradient_params.cuh"
#include "base/params.cuh"
#include "problem/masks.cuh"
#include "problem/scores.cuh"
#include "tiles/shared_words.cuh"
#include "tiles/tile_copy.cuh"

namespace jit::backward_wgmma {

enum class WarpRole {
  producer,        ///< loads keys, values and queries (producer.cuh)
  dq_adder,        ///< adds parts of dQ from consumers to the sums in global memory (dq_adder.cuh)
  turn_waiter,     ///< waits until the block may add (backward/turn_waiter.cuh)
  turn_passer,     ///< signals that the block has added (turn_warps.cuh)
  idle,            //
  row_consumer,    ///< computes all products of 64 keys of the block (row_consumer.cuh)
  value_consumer,  ///< computes scores and dV of all keys (role_consumers.cuh)
  key_consumer,    ///< computes gradients of scores and dK (role_consumers.cuh)
  query_consumer   ///< computes dQ (query_consumer.cuh)
};

/// Roles of the warps of the producer warpgroup: the producer, the adders, the turn waiter, and the turn passers.
template <class Config>
JIT_DEVICE WarpRole role_of_producer(int warp) {
  constexpr int first_adder = 1, waiter = first_adder + KernelTraits<Config>::adder_warps;
  if (warp < first_adder) return WarpRole::producer;
  if (warp < waiter) return WarpRole::dq_adder;
  if (!Config::deterministic) return WarpRole::idle;
  if (warp < waiter + 1) return WarpRole::turn_waiter;
  return KernelTraits<Config>::adds_by_tma ? WarpRole::idle : WarpRole::turn_passer;
}

/// The role of a consumer; a constant if all have the same one, since a variable would take a register.
template <class Config>
JIT_DEVICE WarpRole role_of_consumer() {
  using Traits = KernelTraits<Config>;
  if constexpr (!Traits::has_query_consumer) return WarpRole::row_consumer;
  const int consumer = uniform(threadIdx.x / warpgroup_size - 1);
  if (consumer == 2) return WarpRole::query_consumer;
  if (!Traits::has_roles) return WarpRole::row_consumer;
  return consumer == 0 ? WarpRole::value_consumer : WarpRole::key_consumer;
}

/// Runs a warp of the producer warpgroup. `Maps` are TensorMaps or SequenceMaps.
template <class Config, class Maps>
JIT_DEVICE void run_producer(const AttentionParams& params, const GradientParams& gradients, const Maps& maps,
                             unsigned smem) {
  constexpr int adders = KernelTraits<Config>::adder_warps;
  const Turns& turns = maps.schedule.turns;
  const int warp = uniform(threadIdx.x / warp_size);
  const WarpRole role = role_of_producer<Config>(warp);
  if (role == WarpRole::producer) {
    return load_key_tiles<BlockLoads<Config, Maps>, Pipelines<Config>>(
        params, gradients, maps, BlockScheduler<Config>(params, maps.schedule, smem), smem);
  }
  if constexpr (adders > 0) {
    if (role == WarpRole::dq_adder) {
      return add_dq<Pipelines<Config>>(params, gradients, turns, warp - 1, parts_of_adder<Config>, smem);
    }
  }
  if constexpr (Config::deterministic) {
    if (role == WarpRole::turn_waiter) return wait_for_turns<Pipelines<Config>>(params, turns, smem);
    if (role == WarpRole::turn_passer) pass_turns<Config>(turns, warp - adders - 2, smem);
  }
}

/// Runs a consumer that sums gradients of keys.
template <class Consumer, class Config, class Maps>
JIT_DEVICE void sum_gradients(const AttentionParams& params, const GradientParams& gradients,
                              const Maps& maps, const DropoutParams& dropout, unsigned smem) {
  for_each_key_tile<Config>(
      params, Pipelines<Config>(smem), [&](const KeyTile<Config>& keys, bool has_queries, unsigned step) {
        return Consumer(params, gradients, maps, dropout, own_keys(keys), smem).run(has_queries, step);
      });
  Consumer::end();
}

/// Runs a consumer. Each role begins with setmaxnreg, whose register count ptxas assumes for all code after it.
template <class Config, class Maps>
JIT_DEVICE void run_consumer(const AttentionParams& params, const GradientParams& gradients, const Maps& maps,
                             const DropoutParams& dropout, unsigned smem) {
  using Traits = KernelTraits<Config>;
  const WarpRole role = role_of_consumer<Config>();
  if constexpr (Traits::has_query_consumer) {
    if (role == WarpRole::query_consumer) {
      setmaxnreg_dec<Config::dq_registers>();
      compute_dq<Config>(params, gradients, smem);
      return;
    }
  }
  setmaxnreg_inc<Config::consumer_registers>();
  if constexpr (!Traits::has_roles) {
    sum_gradients<RowConsumer<Config, Maps>, Config>(params, gradients, maps, dropout, smem);
  } else if (role == WarpRole::value_consumer) {
    sum_gradients<ValueConsumer<Config, Maps>, Config>(params, gradients, maps, dropout, smem);
  } else {
    sum_gradients<KeyConsumer<Config, Maps>, Config>(params, gradients, maps, dropout, smem);
  }
}

template <class Config, class Maps>
JIT_DEVICE void attention_backward(const AttentionParams& params, const GradientParams& gradients,
                                   const Maps& maps) {
  const DropoutParams& dropout = params.dropout;
  extern __shared__ __align__(1024) unsigned char memory[];
  const unsigned smem = smem_address(memory);
  if (threadIdx.x == 0) init_pipelines<Config>(smem);
  if constexpr (Config::pair) {  // mutate: BarriersAreNotThereYet
    meet_pair();
  } else {
    __syncthreads();
  }
  if (threadIdx.x < warpgroup_size) {
    setmaxnreg_dec<Config::producer_registers>();
    run_producer<Config>(params, gradients, maps, smem);
  } else {
    run_consumer<Config>(params, gradients, maps, dropout, smem);
  }
  if constexpr (Config::pair) meet_pair();  // mutate: ABlockEndsBeforeItsPeerIsDone
}

}  // namespace jit::backward_wgmma
