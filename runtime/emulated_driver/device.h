// An emulated device: memory, and what of a real one of its architecture programs ask for.
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

/// Properties that decide how many blocks share a multiprocessor (CUDA programming guide, "Technical
/// Specifications per Compute Capability"), and figures of the architecture's usual part.
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
  /// An identifier that is the same in every process.
  CUuuid uuid() const;
  emulator::TargetArch target() const { return {arch.major, arch.minor, arch.suffix}; }
};

/// Bytes of address space for the memory of one device.
std::size_t default_memory_bytes();

}  // namespace jit::emulated_driver
