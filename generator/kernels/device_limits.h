// Limits of a GPU that determine legal and promising configs.
#pragma once

#include <jit/arch.h>
#include <jit/device.h>

namespace jit {

struct DeviceLimits {
  Arch arch;
  int smem_per_block = 0;  ///< opt-in limit, bytes
  int smem_per_sm = 0;     ///< bytes
  int sm_count = 0;
};

DeviceLimits device_limits(const DeviceInfo& device);
/// Limits of an absent GPU: the architecture's, with the SMs of its usual data-center or desktop GPU.
DeviceLimits device_limits(Arch arch);

/// Shared memory that the system reserves in each block from sm_80 on (CUDA programming guide, "Compute
/// Capability 8.x").
inline constexpr int reserved_smem_per_block = 1024;

}  // namespace jit
