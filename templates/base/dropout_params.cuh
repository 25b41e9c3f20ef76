// A further parameter of kernels with dropout, behind the others. Compiled by the host and by NVRTC.
#pragma once

#include "base/host_device.cuh"

namespace jit {

struct DropoutParams {
  const unsigned long long* rng_state;  ///< seed and offset of the generator, read on the device alone
  float kept_share;                     ///< 1 − rate
  float scale;                          ///< 1 / kept_share: of what is kept
  /// In each byte the largest random byte that keeps a score.
  unsigned thresholds;
};

}  // namespace jit
