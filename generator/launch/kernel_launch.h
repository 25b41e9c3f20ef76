// The arguments of a kernel launch for its family.
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
      params;  ///< from fill_params, with work to do; launches may set batch_begin and q_tile_begin
  Stream stream;
  StreamLease& memory;   ///< the call's lease, for memory besides the workspace
  void* workspace;       ///< as large as the family requested; null for 0 bytes
  void* kept = nullptr;  ///< memory of the plan that workspaces do not overlap
  int turn = 0;          ///< number of earlier launches of the kernel in the call
  /// The mailbox that a kernel's turns share: null at the first turn, which sets it.
  void** mailbox = nullptr;
  GradientParams* gradients = nullptr;  ///< of backward; without fields between kernels
};

}  // namespace jit
