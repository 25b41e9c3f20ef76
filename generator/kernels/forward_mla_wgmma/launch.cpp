#include <jit/error.h>

#include "generator/kernels/forward_mla_wgmma/family.h"
#include "generator/launch/kernel_launch.h"
#include "generator/launch/split_work.h"
#include "generator/launch/tensor_maps.h"
#include "runtime/launch.h"
#include "templates/forward_mla_wgmma/tensor_maps.cuh"
#include "templates/tiles/bounded_box.cuh"
#include "templates/tiles/panel_tile.cuh"

namespace jit {

using namespace forward_mla_wgmma;

void Family<ForwardMlaWgmma>::launch(const KernelLaunch& launch, const ForwardMlaWgmma& config) {
  const LoadedKernel& kernel = launch.kernel;
  const int page_size = launch.spec.sequences_kv == SequenceKind::paged ? launch.spec.page_size : 0;
  KernelMemory memory{};
  if (config.copies == Copies::tma)
    memory.k = map_keys(launch.spec, box_rows(config.tile_kv, page_size), launch.params).k;
  const SplitLaunch split = split_launch(
      launch, {.tile_rows = rows_per_warpgroup, .tile_kv = config.tile_kv, .blocks_per_sm = 1}, name);
  memory.split = split.params;
  void* arguments[] = {&launch.params, &memory};
  try {
    jit::launch(kernel.kernel.handle(),
                {.grid = {static_cast<unsigned>(split.blocks), 1, 1},
                 .block = {kernel.threads, 1, 1},
                 .smem_bytes = kernel.smem_bytes,
                 .dependent = true},
                arguments, launch.stream);
  } catch (const Error&) {
    launch.memory.reset(kernel.device, launch.stream);
    throw;
  }
}

}  // namespace jit
