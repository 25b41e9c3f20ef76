// The launches of gradients from lists of blocks of keys by wgmma.
#pragma once

#include <jit/list_gradients.h>
#include <jit/stream.h>

#include "generator/launch/loaded_kernel.h"
#include "generator/launch/stream_memory.h"
#include "generator/operations/list_gradients/arguments.h"
#include "templates/list_gradients/params.cuh"

namespace jit {

/// Whether the kernel by wgmma can read a call's tensors.
bool can_launch_listed(const ListGradientsParams& params);

/// Puts all launches but that of sinks on `stream`, whose `delta` it places. `params` and `work` are those of the call.
/// Requires: can_launch_listed(params).
void launch_listed(const ListGradientsSpec& spec, const ListGradientsWork& work, const LoadedKernel& kernel,
                   const LoadedKernel& transposing, StreamLease& lease, ListGradientsParams& params,
                   Stream stream);

}  // namespace jit
