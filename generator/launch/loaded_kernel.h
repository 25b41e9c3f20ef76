// A kernel on a device, ready to launch.
#pragma once

#include <memory>

#include "generator/build/image.h"
#include "runtime/module.h"

namespace jit {

struct LoadedKernel {
  Kernel kernel;
  Kernel ahead;  ///< a second kernel that launches run before it, if the program has one
  std::shared_ptr<const KernelImage> image;
  unsigned threads = 0;     ///< per block
  unsigned smem_bytes = 0;  ///< dynamic shared memory per block
  int device = 0;
  int sm_count = 0;         ///< of the device
  int resident_blocks = 0;  ///< occupancy of the whole device
  int l2_bytes = 0;         ///< of the device
};

/// Loads the image's cubin, or its PTX on emulated devices. An image from disk that the driver rejects is
/// compiled again, once, and replaced. Throws Error load_failed.
Module load_module(KernelStore& store, std::shared_ptr<const KernelImage>& image);

/// Loads the image's code on `device` by load_module, with everything that a launch needs.
LoadedKernel load_kernel(KernelStore& store, std::shared_ptr<const KernelImage> image, int device);

}  // namespace jit
