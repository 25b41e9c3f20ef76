#include "generator/kernels/converted_scales.h"
#include "generator/kernels/forward_split_wgmma/family.h"
#include "generator/kernels/tma_rules.h"
#include "generator/launch/kernel_launch.h"
#include "generator/launch/split_work.h"
#include "generator/launch/tensor_maps.h"
#include "templates/forward_split_wgmma/smem_layout.cuh"
#include "templates/split_keys/split_params.cuh"

namespace jit {

using namespace forward_split_wgmma;

namespace {

SplitTiles tiles_of(const ForwardSplitWgmma& config, int rows) {
  return {.tile_rows = config.tile_rows,
          .tile_kv = config.tile_kv,
          .blocks_per_sm = config.blocks_per_sm,
          .requests = config.requests,
          .box_rows = rows};
}

}  // namespace

void Family<ForwardSplitWgmma>::launch(const KernelLaunch& launch, const ForwardSplitWgmma& config) {
  const int rows = box_rows(launch.spec, config.tile_kv);
  const SplitLaunch split = split_launch(launch, tiles_of(config, rows), name);
  if (split.blocks == 0) return;
  const MappedKeys keys = map_keys(launch.spec, rows, launch.params);
  AttentionParams params = converter_params(launch.spec, launch.params);
  KernelMemory memory{.k = keys.k, .v = keys.v, .split_params = split.params};
  void* arguments[] = {&params, &memory};
  launch_split(launch, split, arguments, true);
}

}  // namespace jit
