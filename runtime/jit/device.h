// The GPUs of this machine as values, asked from the driver once per call. Thread safe.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <jit/arch.h>

namespace jit {

/// What the driver says of one GPU. A plain value: one may be written by hand to generate for an absent GPU.
struct DeviceInfo {
  int ordinal = 0;
  std::string name = {};
  Arch arch;                     ///< compute capability, without suffix
  int sm_count = 0;              ///< multiprocessors
  int smem_per_block_optin = 0;  ///< bytes
  int smem_per_sm = 0;           ///< bytes
  int registers_per_sm = 0;      ///< 32-bit registers
  int l2_bytes = 0;
  std::size_t memory_bytes = 0;
  int driver_version = 0;  ///< 1000 * major + 10 * minor, e.g. 13000
  std::string uuid = {};   ///< "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"
};

/// All GPUs, by ordinal. Throws Error driver_unavailable when there is no driver or no GPU.
std::vector<DeviceInfo> devices();

/// The GPU with this ordinal. Throws Error driver_unavailable, or invalid_argument when there is no such
/// ordinal.
DeviceInfo device_info(int ordinal);

/// The richest compile target that `device` runs: sm_90a for 9.0, and so on; plain before 9.0.
Arch native_arch(const DeviceInfo& device);

}  // namespace jit
