#include "generator/kernels/forward_split_kv/family.h"
#include "generator/kernels/tma_rules.h"
#include "generator/launch/kernel_launch.h"
#include "generator/launch/split_work.h"
#include "generator/launch/tensor_maps.h"
#include "templates/forward_split_kv/smem_layout.cuh"
#include "templates/split_keys/split_params.cuh"

namespace jit {
namespace {

SplitTiles tiles_of(const ForwardSplitKv& config) {
  return {.tile_rows = config.row_warps * config.warp_rows,
          .tile_kv = config.tile_kv,
          .blocks_per_sm = config.blocks_per_sm};
}

}  // namespace

void Family<ForwardSplitKv>::launch(const KernelLaunch& launch, const ForwardSplitKv& config) {
  SplitLaunch split = split_launch(launch, tiles_of(config), name);
  if (config.copies == Copies::tma) {
    const MappedKeys keys = map_keys(launch.spec, box_rows(launch.spec, config.tile_kv), launch.params);
    KernelMemory memory{.k = keys.k, .v = keys.v, .split_params = split.params};
    void* arguments[] = {&launch.params, &memory};
    return launch_split(launch, split, arguments, true);
  }
  void* arguments[] = {&launch.params, &split.params};
  launch_split(launch, split, arguments, false);
}

}  // namespace jit
