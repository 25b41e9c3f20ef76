// A further parameter of kernels with dropout, behind the others. Compiled by the host and by NVRTC.
#pragma once

#include "base/host_device.cuh"

namespace jit {

/// Whether kernels of a Config have dropout: only where they have does it say so.
template <class Config>
inline constexpr bool has_dropout = requires {
  requires Config::dropout;
};

struct DropoutParams {
  const unsigned long long* rng_state;  ///< seed and offset of the generator, read on the device alone
  float kept_share;                     ///< 1 − rate
  float scale;                          ///< 1 / kept_share: of what is kept
  /// In each byte the largest random byte that keeps a score.
  unsigned thresholds;
};

}  // namespace jit
