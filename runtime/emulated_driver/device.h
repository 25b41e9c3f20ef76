// An emulated device: its memory, and the properties that programs query.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include <cuda.h>

#include <emulator/memory.h>
#include <emulator/module.h>
#include <jit/arch.h>

namespace jit::emulated_driver {

/// Properties that decide occupancy (CUDA programming guide, "Technical Specifications per Compute
/// Capability"), and figures of a typical GPU of the architecture.
struct DeviceProperties {
  int sm_count = 0;
  int l2_bytes = 0;
  int smem_per_block_optin = 0;
  int smem_per_sm = 0;
  int registers_per_sm = 65536;
  int threads_per_sm = 0;
  int blocks_per_sm = 0;
};
DeviceProperties properties_of(Arch arch);

struct Device {
  Device(int ordinal, Arch arch, std::size_t memory_bytes);

  const int ordinal;
  const Arch arch;
  const DeviceProperties properties;
  emulator::Memory memory;

  std::string name() const;  ///< "emulated sm_90a"
  /// An identifier that is equal in every process.
  CUuuid uuid() const;
  emulator::TargetArch target() const { return {arch.major, arch.minor, arch.suffix}; }
};

/// Bytes of address space for the memory of one device.
std::size_t default_memory_bytes();

}  // namespace jit::emulated_driver
