#include <fmt/format.h>
#include <jit/error.h>

#include "generator/kernels/forward_mla_wgmma/family.h"
#include "generator/kernels/tma_rules.h"
#include "generator/launch/kernel_launch.h"
#include "generator/launch/split_work.h"
#include "generator/launch/tensor_maps.h"
#include "templates/forward_mla_wgmma/smem_layout.cuh"
#include "templates/split_keys/split_params.cuh"
#include "templates/tiles/panel_tile.cuh"

namespace jit {

using namespace forward_mla_wgmma;

namespace {

TensorMap map_of_keys(const AttentionSpec& spec, const AttentionParams& params) {
  try {
    return map_keys(spec, box_rows(spec, tile_kv), params).k;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::invalid_argument) throw;
    throw Error(
        error.code(), "launch", error.field(),
        fmt::format("{}: a kernel with copies = tma reads keys whose strides are positive multiples of 16 "
                    "bytes, and pages without cache_leftpad. Give a config with copies=cp_async, or none",
                    error.field()));
  }
}

}  // namespace

void Family<ForwardMlaWgmma>::launch(const KernelLaunch& given, const ForwardMlaWgmma& config) {
  AttentionParams params = upcasts_ahead(given.spec, config) ? launch_upcast_keys(given) : given.params;
  const AttentionSpec spec = read_spec(given.spec, config);
  const KernelLaunch launch{.kernel = given.kernel,
                            .spec = spec,
                            .params = params,
                            .stream = given.stream,
                            .memory = given.memory,
                            .workspace = given.workspace,
                            .turn = given.turn,
                            .mailbox = given.mailbox};
  KernelMemory memory{};
  if (config.copies == Copies::tma) memory.k = map_of_keys(spec, params);
  const SplitLaunch split = split_launch(launch,
                                         {.tile_rows = rows_per_warpgroup,
                                          .tile_kv = tile_kv,
                                          .blocks_per_sm = 1,
                                          .cluster = launch.kernel.image->program.cluster},
                                         name);
  memory.split_params = split.params;
  void* arguments[] = {&launch.params, &memory};
  launch_split(launch, split, arguments, true);
}

}  // namespace jit
