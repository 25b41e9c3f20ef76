#include <algorithm>

#include "generator/kernels/backward_dkv_mma_sync/family.h"
#include "generator/launch/kernel_launch.h"
#include "generator/launch/sequence_grid.h"
#include "runtime/launch.h"

namespace jit {
// One block per tile of keys: (KV heads, tiles, batch), or (KV heads, upper bound of tiles) for varlen; twice
// the heads if separate blocks sum dK and dV; several launches if the grid is too large.
void Family<BackwardDkvMmaSync>::launch(const KernelLaunch& launch, const BackwardDkvMmaSync& config) {
  const LoadedKernel& kernel = launch.kernel;
  AttentionParams& params = launch.params;
  GradientParams& gradients = *launch.gradients;
  place_statistics(params, launch.workspace, gradients);
  const SequenceGrid blocks = key_grid(launch.spec, params, config.tile_kv);
  LaunchConfig grid{.grid = {static_cast<unsigned>(params.heads_kv) * (config.separate ? 2 : 1), 1, 1},
                    .block = {kernel.threads, 1, 1},
                    .smem_bytes = kernel.smem_bytes};
  place_large_rows(launch.memory,
                   std::uint64_t{grid.grid[0]} * static_cast<std::uint64_t>(blocks.tiles) *
                       static_cast<std::uint64_t>(blocks.entries),
                   gradients);
  void* arguments[] = {&params, &gradients};
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
