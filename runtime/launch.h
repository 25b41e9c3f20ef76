// The launch path: no allocation, no lock, no environment.
#pragma once

#include <cuda.h>

namespace jit {

struct LaunchConfig {
  unsigned grid[3] = {1, 1, 1};
  unsigned block[3] = {1, 1, 1};
  unsigned smem_bytes = 0;  ///< dynamic shared memory
  /// Whether blocks may start before the kernel in front of this one on the stream has ended ("programmatic
  /// stream serialization"): for kernels that wait for it themselves (griddepcontrol.wait), from sm_90 on. Not
  /// done with drivers before 12.3.
  bool dependent = false;
  /// Whether all blocks must run at the same time ("cooperative"): for kernels whose blocks wait for one another in any
  /// order. The launch waits until there is room for all; it fails if there never is. On an H200 `dependent` does nothing
  /// beside it.
  bool cooperative = false;
};

/// Puts the kernel on `stream`; null stands for the default stream of the current context. `params` holds one
/// pointer per kernel parameter, read during the call. Throws Error launch_failed. Thread safe.
void launch(CUkernel kernel, const LaunchConfig& config, void** params, CUstream stream);

}  // namespace jit
