// Opens the CUDA driver of this machine.
#pragma once

#include <string>

#include "runtime/driver_api.h"

namespace jit {

struct LoadedDriver {
  DriverApi api;
  std::string failure;  ///< one sentence; empty: the driver is usable and has a GPU
};

/// Opens and initializes the driver. Must be called only once in a process.
LoadedDriver load_cuda_driver();

}  // namespace jit
