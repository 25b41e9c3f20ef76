// The launch path: no allocation, no lock, no access to the environment.
#pragma once

#include <cuda.h>

namespace jit {

struct LaunchConfig {
  unsigned grid[3] = {1, 1, 1};
  unsigned block[3] = {1, 1, 1};
  unsigned smem_bytes = 0;  ///< dynamic shared memory
  /// Whether blocks may start before the previous kernel on the stream has ended ("programmatic stream
  /// serialization"), for kernels that wait by griddepcontrol.wait, from sm_90 on. Ignored with drivers
  /// before 12.3.
  bool dependent = false;
  /// Whether all blocks must be resident at once ("cooperative"), for kernels whose blocks wait for one
  /// another in any order. The launch waits for room, and fails if the blocks can never fit. On an H200 it
  /// disables `dependent`.
  bool cooperative = false;
};

/// Launches the kernel on `stream`; null is the default stream of the current context. `params` holds one
/// pointer per kernel parameter, read during the call. Throws Error launch_failed. Thread safe.
void launch(CUkernel kernel, const LaunchConfig& config, void** params, CUstream stream);

}  // namespace jit
