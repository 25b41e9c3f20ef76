// Running micro-kernels on the first GPU.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "emulator/tests/conformance/micro_kernel.h"

namespace jit::conformance {

/// A context on the first GPU and the last kernel that was loaded. One thread.
class GpuRunner {
 public:
  /// Throws jit::Error where there is no GPU or driver.
  GpuRunner();
  ~GpuRunner();

  /// "NVIDIA H200, driver for CUDA 12.8"
  std::string device() const;

  /// Compiles the PTX. Throws std::runtime_error with the driver's log; the context stays good.
  void load(const MicroKernel& kernel);
  /// Runs the kernel that was loaded and gives its output. After an exception the context is not to be used
  /// any more.
  std::vector<std::byte> run(const MicroKernel& kernel);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace jit::conformance
