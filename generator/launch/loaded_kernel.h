// A kernel on a device, ready to launch.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <jit/attention.h>

#include "generator/build/clean.h"
#include "generator/launch/work_counters.h"
#include "runtime/module.h"
#include "templates/base/params.cuh"

namespace jit {

struct LoadedKernel {
  Kernel kernel;
  AttentionSpec spec;
  KernelConfig config;
  std::shared_ptr<const KernelImage> image;
  unsigned smem_bytes = 0;
  int sm_count = 0;  ///< of the device
  int l2_bytes = 0;
  int device = 0;
  const WorkCounters* counters = nullptr;  ///< of the context, which outlives the kernel
  std::string why;
  std::vector<std::string> tuning_log;
};

/// The image's code in the driver. An image that came from disk and that the driver refuses is compiled anew, once, and replaced. Throws Error load_failed.
Module load_module(ContextState& context, std::shared_ptr<const KernelImage>& image);

/// Loads the forward kernel `built` for `spec` on `device`, with all that a launch needs, by load_module.
LoadedKernel load_kernel(ContextState& context, const AttentionSpec& spec, BuiltConfig built, int device,
                         std::string why);

/// Puts the kernel on `stream`, in several launches when batch or queries exceed what a grid holds. `params`
/// come from fill_params and compute something; their batch_begin and q_tile_begin are overwritten. Throws
/// Error invalid_argument when the kernel reads by TMA and a tensor's strides are not for TMA.
void launch_forward(const LoadedKernel& kernel, AttentionParams& params, Stream stream);

}  // namespace jit
