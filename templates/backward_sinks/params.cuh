// The parameter of the kernel of the sinks' gradients. Compiled by the host and by NVRTC.
#pragma once

#include "base/host_device.cuh"

namespace jit {

struct SinkGradientParams {
  const float* sinks;  ///< (heads), natural units
  float* d_sinks;      ///< (heads), written
  /// What other kernels left of each query, (batch, heads, rows), in any order within a head: log2 Σ exp(score), sink
  /// included, and do · o − dlse times `sign`.
  const float* lse_log2;
  const float* delta;
  float sign;
  int batch;
  int heads;
  long long rows;
};

}  // namespace jit
