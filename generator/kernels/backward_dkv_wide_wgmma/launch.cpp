#include <algorithm>

#include "generator/kernels/backward_dkv_wide_wgmma/family.h"
#include "generator/kernels/backward_wide.h"
#include "generator/launch/kernel_launch.h"
#include "generator/launch/sequence_grid.h"
#include "runtime/launch.h"
#include "templates/backward_wide/smem_layout.cuh"

namespace jit {
// One pair of blocks per tile of keys: (pairs of KV heads, tiles, batch), or (pairs of KV heads, upper bound
// of tiles) for varlen; several launches if the grid is too large.
void Family<BackwardDkvWideWgmma>::launch(const KernelLaunch& launch, const BackwardDkvWideWgmma&) {
  const LoadedKernel& kernel = launch.kernel;
  AttentionParams& params = launch.params;
  GradientParams& gradients = *launch.gradients;
  place_statistics(params, launch.workspace, gradients);
  const SequenceGrid blocks = key_grid(launch.spec, params, backward_wide::tile_rows);
  if (blocks.entries == 0 || blocks.tiles == 0) return;
  SequenceMaps maps = backward_wide::maps(launch);
  LaunchConfig grid{.grid = {static_cast<unsigned>(params.heads_kv) * 2, 1, 1},
                    .block = {kernel.threads, 1, 1},
                    .smem_bytes = kernel.smem_bytes};
  place_large_rows(launch.memory,
                   std::uint64_t{grid.grid[0]} * static_cast<std::uint64_t>(blocks.tiles) *
                       static_cast<std::uint64_t>(blocks.entries),
                   gradients);
  void* arguments[] = {&params, &gradients, &maps};
  for (params.batch_begin = 0; params.batch_begin < blocks.entries; params.batch_begin += max_grid_yz) {
    grid.grid[2] = static_cast<unsigned>(std::min(blocks.entries - params.batch_begin, max_grid_yz));
    for (gradients.k_tile_begin = 0; gradients.k_tile_begin < blocks.tiles;
         gradients.k_tile_begin += max_grid_yz) {
      grid.grid[1] = static_cast<unsigned>(std::min(blocks.tiles - gradients.k_tile_begin, max_grid_yz));
      jit::launch(kernel.kernel.handle(), grid, arguments, launch.stream);
    }
  }
}

}  // namespace jit
