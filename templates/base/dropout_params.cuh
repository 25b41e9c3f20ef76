// The generator and the rate of kernels with dropout: a part of AttentionParams. Compiled by the host and by NVRTC.
#pragma once

#include "base/host_device.cuh"

namespace jit {

/// Whether kernels of a Config have dropout: only where they have does it say so.
template <class Config>
inline constexpr bool has_dropout = requires {
  requires Config::dropout;
};

/// Where a kernel ahead of the one that reads them leaves which scores are kept, a bit for each: the words of 32 lanes for a
/// block of queries and keys (steps/precomputed_dropout.cuh), blocks of keys side by side, then those of queries,
/// then heads of batch entries.
struct DropoutMaskBits {
  unsigned* words;
  int query_blocks;  ///< of a head
  int key_blocks;
};

/// Whether kernels of a Config read such bits, and draw nothing themselves.
template <class Config>
inline constexpr bool has_dropout_mask_ahead = requires {
  requires Config::dropout_mask_ahead;
};

struct DropoutParams {
  const unsigned long long* rng_state;  ///< seed and offset of the generator, read on the device alone
  float keep_probability;               ///< 1 − rate
  float scale;                          ///< 1 / keep_probability: of what is kept
  /// In each byte the largest random byte that keeps a score.
  unsigned thresholds;
  DropoutMaskBits mask;  ///< for kernels of configs that precompute the dropout mask alone
};

}  // namespace jit
