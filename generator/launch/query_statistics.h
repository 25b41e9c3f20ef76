// Per-query statistics that the dQ kernel passes to the dK and dV kernel, in their shared workspace.
#pragma once

#include <cstddef>
#include <cstdint>

#include "generator/launch/stream_memory.h"
#include "templates/base/gradient_params.cuh"
#include "templates/base/params.cuh"

namespace jit {

/// Size of the workspace.
std::size_t statistics_bytes(const AttentionParams& params);

/// Sets the addresses of the statistics in the workspace.
void place_statistics(const AttentionParams& params, void* workspace, GradientParams& gradients);

/// Sets the address at which kernels of a backward call count large rows (GradientParams::large_rows), after
/// the counter of persistent grids. `blocks` is the grid size of the last kernel.
void place_large_rows(StreamLease& memory, std::uint64_t blocks, GradientParams& gradients);

}  // namespace jit
