// Statistics of each query that the kernel of dq leaves to that of dk and dv, in the workspace that the two
// share.
#pragma once

#include <cstddef>
#include <cstdint>

#include "generator/launch/stream_memory.h"
#include "templates/base/gradient_params.cuh"
#include "templates/base/params.cuh"

namespace jit {

/// Bytes of the workspace.
std::size_t statistics_bytes(const AttentionParams& params);

/// Where in the workspace kernels find the numbers.
void place_statistics(const AttentionParams& params, void* workspace, GradientParams& gradients);

/// Where the kernels of a backward call count large rows (GradientParams::large_rows): behind the counter of persistent
/// grids. The last kernel has so many blocks.
void place_large_rows(StreamLease& memory, std::uint64_t blocks, GradientParams& gradients);

}  // namespace jit
