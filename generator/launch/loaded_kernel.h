// A kernel on a device, ready to launch.
#pragma once

#include <memory>

#include "generator/build/image.h"
#include "runtime/module.h"

namespace jit {

struct LoadedKernel {
  Kernel kernel;
  Kernel ahead;  ///< that launches run before it, where the program has one
  std::shared_ptr<const KernelImage> image;
  unsigned threads = 0;     ///< of a block
  unsigned smem_bytes = 0;  ///< dynamic, of a block
  int device = 0;
  int sm_count = 0;         ///< of the device
  int resident_blocks = 0;  ///< that fit on the device at once
  int l2_bytes = 0;         ///< of the device
};

/// The image's code in the driver: its cubin, or for emulated devices its PTX. An image that came from disk
/// and that the driver refuses is compiled anew, once, and replaced. Throws Error load_failed.
Module load_module(KernelStore& store, std::shared_ptr<const KernelImage>& image);

/// Loads the image's code on `device`, with all that a launch needs, by load_module.
LoadedKernel load_kernel(KernelStore& store, std::shared_ptr<const KernelImage> image, int device);

}  // namespace jit
