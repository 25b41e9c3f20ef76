// Running micro-kernels on the emulator, as an sm_90a device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "micro_kernels/micro_kernel.h"

namespace jit::conformance {

struct EmulatorResult {
  std::string error;                  ///< why it could not be loaded or launched; empty: it ran
  std::vector<std::string> findings;  ///< what the emulator holds against the kernel
  std::vector<std::byte> output;
};

EmulatorResult run_on_emulator(const MicroKernel& kernel, std::uint64_t seed);

}  // namespace jit::conformance
