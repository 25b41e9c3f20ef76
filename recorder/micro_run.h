// Running micro-kernels on a device of this process.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "emulator/micro_kernels/micro_kernel.h"

namespace jit::conformance {

/// A context on a device and the last kernel that was loaded. One thread.
class MicroRunner {
 public:
  /// Throws jit::Error where there is no such device or no driver.
  explicit MicroRunner(int ordinal);
  ~MicroRunner();

  /// "NVIDIA H200, driver for CUDA 12.8"
  std::string device() const;
  /// "sm_90a": the most capable architecture that it runs.
  std::string target() const;

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
