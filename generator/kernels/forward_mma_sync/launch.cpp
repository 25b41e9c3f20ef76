#include <algorithm>

#include "generator/kernels/forward_mma_sync/family.h"
#include "generator/kernels/waiting_spans.h"
#include "generator/launch/kernel_launch.h"
#include "generator/launch/sequence_grid.h"
#include "generator/problem/argument_table.h"
#include "runtime/launch.h"

namespace jit {
namespace {

// Memory for waiting results of spans; larger grids are launched in several parts.
constexpr std::size_t most_waiting_bytes = std::size_t{256} << 20;

// Bytes of waiting results of a block's spans; 0 with a single span.
std::size_t waiting_bytes_of_block(const AttentionSpec& spec, const ForwardMmaSync& config,
                                   const AttentionParams& params) {
  if (spec.split_keys == 0) return 0;
  constexpr int rows_per_mma = 16, rows_of_lane = 2, warp_size = 32;
  const int row_blocks = config.tile_q / config.warps / rows_per_mma;
  return waiting_bytes(spec, params, config.warps * warp_size, rows_of_lane * row_blocks);
}

// The grid of all blocks of a call, and that of its largest launch.
struct Grids {
  SequenceGrid all, largest;
};

Grids grids_of(const AttentionSpec& spec, const ForwardMmaSync& config, const AttentionParams& params) {
  SequenceGrid all = query_grid(spec, params, config.tile_q);
  // Blocks also zero padding rows, even without requests.
  if (has_varlen_q(spec)) all = {.tiles = std::max(all.tiles, 1), .entries = 1};
  SequenceGrid largest{std::min(all.tiles, max_grid_yz), std::min(all.entries, max_grid_yz)};
  const std::size_t of_block = waiting_bytes_of_block(spec, config, params);
  if (of_block == 0 || params.heads_q == 0) return {all, largest};
  const std::size_t tiles = most_waiting_bytes / of_block / static_cast<std::size_t>(params.heads_q);
  const auto at_most = [](int count, std::size_t most) {
    return static_cast<int>(std::clamp<std::size_t>(most, 1, static_cast<std::size_t>(std::max(count, 1))));
  };
  largest.tiles = at_most(largest.tiles, tiles);
  largest.entries = at_most(largest.entries, tiles / static_cast<std::size_t>(largest.tiles));
  return {all, largest};
}

}  // namespace

std::size_t Family<ForwardMmaSync>::workspace_bytes(const AttentionSpec& spec, const ForwardMmaSync& config,
                                                    const AttentionParams& params, int /*sm_count*/) {
  const std::size_t of_block = waiting_bytes_of_block(spec, config, params);
  if (of_block == 0) return 0;
  const SequenceGrid largest = grids_of(spec, config, params).largest;
  return of_block * static_cast<std::size_t>(params.heads_q) * static_cast<std::size_t>(largest.tiles) *
         static_cast<std::size_t>(largest.entries);
}

// One block per tile of queries: (heads, tiles, batch), or (heads, upper bound of tiles) for varlen; several
// launches if the grid is too large.
void Family<ForwardMmaSync>::launch(const KernelLaunch& launch, const ForwardMmaSync& config) {
  const LoadedKernel& kernel = launch.kernel;
  AttentionParams& params = launch.params;
  const auto [blocks, most] = grids_of(launch.spec, config, params);
  SpanMemory spans{};
  if (launch.spec.split_keys != 0) spans = span_memory(launch.spec, params, launch.workspace);
  LaunchConfig grid{.grid = {static_cast<unsigned>(params.heads_q), 1, 1},
                    .block = {kernel.threads, 1, 1},
                    .smem_bytes = kernel.smem_bytes};
  void* arguments[] = {&params, &spans};
  for (params.batch_begin = 0; params.batch_begin < blocks.entries; params.batch_begin += most.entries) {
    grid.grid[2] = static_cast<unsigned>(std::min(blocks.entries - params.batch_begin, most.entries));
    for (params.q_tile_begin = 0; params.q_tile_begin < blocks.tiles; params.q_tile_begin += most.tiles) {
      grid.grid[1] = static_cast<unsigned>(std::min(blocks.tiles - params.q_tile_begin, most.tiles));
      jit::launch(kernel.kernel.handle(), grid, arguments, launch.stream);
    }
  }
}

}  // namespace jit
