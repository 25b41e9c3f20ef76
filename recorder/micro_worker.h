// A process of its own that runs micro-kernels on a device, so that one that hangs or faults takes nothing
// else along.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include <recorder/record.h>

#include "emulator/micro_kernels/micro_kernel.h"

namespace jit::conformance {

struct MicroResult {
  std::string error;  ///< empty: it ran
  std::vector<std::byte> output;
};

struct MicroDevice {
  std::string name;    ///< "NVIDIA H200, driver for CUDA 12.8"
  std::string target;  ///< "sm_90a"
};

/// The device that `open` opens, in a process of its own. Throws std::invalid_argument where there is no such device,
/// std::runtime_error where there is no GPU.
MicroDevice find_device(const OpenDevice& open);

/// Runs the kernels one after the other and gives each result to `done` with the index in `kernels`. A kernel
/// that takes longer than `patience` counts as hung; the first gets a minute more, for the driver to start.
/// Returns the device's name. Throws std::runtime_error where no kernel can be run at all.
std::string run_in_worker(const OpenDevice& open, const std::vector<const MicroKernel*>& kernels,
                          std::chrono::seconds patience,
                          const std::function<void(std::size_t, MicroResult)>& done);

}  // namespace jit::conformance
