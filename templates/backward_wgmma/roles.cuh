// Which warp of a block does what: a warpgroup of producers, and two or three of consumers.
#pragma once

#include "backward_wgmma/traits.cuh"
#include "tiles/shared_words.cuh"

namespace jit::backward_wgmma {

enum class WarpRole {
  producer,        ///< loads keys, values and queries (producer.cuh)
  dq_adder,        ///< adds what consumers leave of dQ to the sums of all blocks (dq_adder.cuh)
  turn_waiter,     ///< waits until the block may add (turn_warps.cuh)
  turn_passer,     ///< says when the block has added
  idle,            //
  row_consumer,    ///< has 64 keys of the block (row_consumer.cuh)
  value_consumer,  ///< has scores and dV of all of them (value_consumer.cuh)
  key_consumer,    ///< has gradients of scores and dK (key_consumer.cuh)
  query_consumer   ///< has dQ (query_consumer.cuh)
};

/// Roles of the producers' warps: the one that loads, adders, the one that waits for turns, and those that
/// pass them.
template <class Config>
__device__ __forceinline__ WarpRole role_of_producer(int warp) {
  constexpr int first_adder = 1, waiter = first_adder + KernelTraits<Config>::adder_warps;
  if (warp < first_adder) return WarpRole::producer;
  if (warp < waiter) return WarpRole::dq_adder;
  if (!Config::deterministic) return WarpRole::idle;
  if (warp < waiter + 1) return WarpRole::turn_waiter;
  return KernelTraits<Config>::adds_by_tma ? WarpRole::idle : WarpRole::turn_passer;
}

/// Where all consumers have one, nobody asks which this is: whatever is asked takes a register.
template <class Config>
__device__ __forceinline__ WarpRole role_of_consumer() {
  using Traits = KernelTraits<Config>;
  if constexpr (!Traits::has_query_consumer) return WarpRole::row_consumer;
  const int consumer = uniform(threadIdx.x / warpgroup_size - 1);
  if (consumer == 2) return WarpRole::query_consumer;
  if (!Traits::has_roles) return WarpRole::row_consumer;
  return consumer == 0 ? WarpRole::value_consumer : WarpRole::key_consumer;
}

}  // namespace jit::backward_wgmma
