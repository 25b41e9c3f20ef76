#include "generator/kernels/device_limits.h"

namespace jit {

DeviceLimits device_limits(const DeviceInfo& device) {
  return {.arch = native_arch(device),
          .smem_per_block = device.smem_per_block_optin,
          .smem_per_sm = device.smem_per_sm,
          .sm_count = device.sm_count};
}

DeviceLimits device_limits(Arch arch) {
  return {.arch = arch,
          .smem_per_block = smem_per_block_optin(arch),
          .smem_per_sm = smem_per_sm(arch),
          .sm_count = usual_sm_count(arch)};
}

}  // namespace jit
