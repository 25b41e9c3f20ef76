// A process of its own that runs micro-kernels on the GPU, so that one that hangs or faults takes nothing
// else along.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "emulator/tests/conformance/micro_kernel.h"

namespace jit::conformance {

struct GpuResult {
  std::string error;  ///< empty: it ran
  std::vector<std::byte> output;
};

/// Runs the kernels one after the other and gives each result to `done` with the index in `kernels`. A kernel
/// that takes longer than `patience` counts as hung; the first gets a minute more, for the driver to start.
/// Returns the device's description. Throws std::runtime_error where no kernel can be run at all.
std::string run_on_gpu(const std::vector<const MicroKernel*>& kernels, std::chrono::seconds patience,
                       const std::function<void(std::size_t, GpuResult)>& done);

}  // namespace jit::conformance
