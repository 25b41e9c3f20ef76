// Random numbers of dropout: 16 bytes for a lane's 16 scores of a group (steps/dropout.cuh).
#pragma once

#include "base/dropout_params.cuh"
#include "base/philox.cuh"
#include "base/prelude.cuh"

namespace jit {

inline constexpr int dropout_group_queries = 16;
inline constexpr int dropout_group_keys = 32;

/// The seed of random numbers, and the first number of the call, read once.
struct DropoutSeed {
  unsigned low, high;
  unsigned long long offset;
  unsigned thresholds;

  JIT_DEVICE explicit DropoutSeed(const DropoutParams& params)
      : low(static_cast<unsigned>(params.rng_state[0])),
        high(static_cast<unsigned>(params.rng_state[0] >> 32)),
        offset(params.rng_state[1]),
        thresholds(params.thresholds) {}
};

/// The random numbers of one head of a batch entry.
struct DropoutCounter {
  DropoutSeed seed;
  unsigned long long counter;  ///< of lane 0

  JIT_DEVICE DropoutCounter(const DropoutSeed& seed, int heads_q, int batch, int head)
      : seed(seed),
        // mutate: AllHeadsAlike
        counter(seed.offset + (static_cast<unsigned long long>(batch) * heads_q + head) * warp_size) {}

  /// The 16 bytes of `lane` in the group that holds query `q` and key `k`.
  JIT_DEVICE PhiloxWords draw(int q, int k, int lane) const {
    const unsigned long long low = counter + lane;
    return philox<7>(  // mutate: FewerRounds
        {{static_cast<unsigned>(low), static_cast<unsigned>(low >> 32),
          static_cast<unsigned>(q) / dropout_group_queries, static_cast<unsigned>(k) / dropout_group_keys}},
        seed.low, seed.high);
  }
};

}  // namespace jit
