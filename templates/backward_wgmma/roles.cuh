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

/// The first warps of producers' roles.
template <class Config>
struct ProducerWarps {
  static constexpr int adders = 1;
  static constexpr int waiting = adders + KernelTraits<Config>::adder_warps;
  static constexpr int passing = waiting + 1;
};

template <class Config>
__device__ __forceinline__ WarpRole role_of_producer(int warp) {
  using Warps = ProducerWarps<Config>;
  if (warp < Warps::adders) return WarpRole::producer;
  if (warp < Warps::waiting) return WarpRole::dq_adder;
  if (!Config::deterministic) return WarpRole::idle;
  if (warp < Warps::passing) return WarpRole::turn_waiter;
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
