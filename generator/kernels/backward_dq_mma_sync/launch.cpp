#include <algorithm>

#include "generator/kernels/backward_dq_mma_sync/family.h"
#include "generator/launch/kernel_launch.h"
#include "generator/launch/sequence_grid.h"
#include "runtime/launch.h"

namespace jit {
// One block per tile of queries: (heads, tiles, batch), or (heads, upper bound of tiles) for varlen; several
// launches if the grid is too large.
void Family<BackwardDqMmaSync>::launch(const KernelLaunch& launch, const BackwardDqMmaSync& config) {
  const LoadedKernel& kernel = launch.kernel;
  AttentionParams& params = launch.params;
  place_statistics(params, launch.workspace, *launch.gradients);
  place_large_rows(launch.memory, 0, *launch.gradients);  // the next kernel is the last one
  const SequenceGrid blocks = query_grid(launch.spec, params, config.tile_q);
  LaunchConfig grid{.grid = {static_cast<unsigned>(params.heads_q), 1, 1},
                    .block = {kernel.threads, 1, 1},
                    .smem_bytes = kernel.smem_bytes};
  void* arguments[] = {&params, launch.gradients};
  for (params.batch_begin = 0; params.batch_begin < blocks.entries; params.batch_begin += max_grid_yz) {
    grid.grid[2] = static_cast<unsigned>(std::min(blocks.entries - params.batch_begin, max_grid_yz));
    for (params.q_tile_begin = 0; params.q_tile_begin < blocks.tiles; params.q_tile_begin += max_grid_yz) {
      grid.grid[1] = static_cast<unsigned>(std::min(blocks.tiles - params.q_tile_begin, max_grid_yz));
      jit::launch(kernel.kernel.handle(), grid, arguments, launch.stream);
    }
  }
}

}  // namespace jit
