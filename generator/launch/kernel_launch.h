// One launch of a kernel as its family sees it.
#pragma once

#include <jit/attention.h>

#include "generator/launch/loaded_kernel.h"
#include "generator/launch/stream_memory.h"
#include "templates/base/gradient_params.cuh"
#include "templates/base/params.cuh"

namespace jit {

struct KernelLaunch {
  const LoadedKernel& kernel;
  const AttentionSpec& spec;
  AttentionParams&
      params;  ///< of fill_params, with something to compute; batch_begin and q_tile_begin are free
  Stream stream;
  StreamLease& memory;   ///< of the call, for what is beside the workspace
  void* workspace;       ///< as large as the family asked for, null for nothing
  void* kept = nullptr;  ///< memory of the plan that no step's workspace lies over
  int turn = 0;          ///< of a kernel that is launched several times for a call
  /// The mailbox of such a kernel: null at its first turn, which leaves there what all of them use.
  void** mailbox = nullptr;
  GradientParams* gradients = nullptr;  ///< of a backward pass; what kernels leave for one another is free
};

}  // namespace jit
