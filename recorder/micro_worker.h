// A separate process runs micro-kernels on a device, so that a hang or fault affects nothing else.
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

/// The device that `open` opens, queried in a separate process. Throws std::invalid_argument when it does not
/// exist, std::runtime_error without a GPU.
MicroDevice find_device(const OpenDevice& open);

/// Runs the kernels in order and passes each result to `done` with its index in `kernels`. A kernel that
/// takes longer than `patience` counts as hung; the first gets a minute more, for driver start. Returns the
/// device's name. Throws std::runtime_error when no kernel can run at all.
std::string run_in_worker(const OpenDevice& open, const std::vector<const MicroKernel*>& kernels,
                          std::chrono::seconds patience,
                          const std::function<void(std::size_t, MicroResult)>& done);

}  // namespace jit::conformance
