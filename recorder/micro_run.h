// Running micro-kernels on a device of this process.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "emulator/micro_kernels/micro_kernel.h"

namespace jit::conformance {

/// A device's context and its loaded kernel. Single-threaded.
class MicroRunner {
 public:
  /// Throws jit::Error without such a device or a driver.
  explicit MicroRunner(int ordinal);
  ~MicroRunner();

  /// "NVIDIA H200, driver for CUDA 12.8"
  std::string device() const;
  /// The most capable architecture that the device runs: "sm_90a".
  std::string target() const;

  /// Compiles the PTX. Throws std::runtime_error with the driver's log; the context remains valid.
  void load(const MicroKernel& kernel);
  /// Runs the loaded kernel and returns its output. After an exception the context is unusable.
  std::vector<std::byte> run(const MicroKernel& kernel);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace jit::conformance
