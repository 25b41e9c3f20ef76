#include "generator/kernels/forward_split_kv/family.h"
#include "generator/launch/kernel_launch.h"
#include "generator/launch/split_work.h"
#include "templates/forward_split_kv/smem_layout.cuh"

namespace jit {
namespace {

SplitTiles tiles_of(const ForwardSplitKv& config) {
  return {.tile_rows = config.row_warps * forward_split_kv::rows_per_warp,
          .tile_kv = config.tile_kv,
          .blocks_per_sm = config.blocks_per_sm};
}

}  // namespace

void Family<ForwardSplitKv>::launch(const KernelLaunch& launch, const ForwardSplitKv& config) {
  SplitLaunch split = split_launch(launch, tiles_of(config), name);
  DescaleParams descale = launch.descale;  // kernels of 16-bit keys do not look at it
  void* arguments[] = {&launch.params, &split.params, &descale};
  launch_split(launch, split, arguments, false);
}

}  // namespace jit
