#include <algorithm>

#include <jit/error.h>

#include "generator/kernels/forward_wgmma/family.h"
#include "generator/launch/ceil_div.h"
#include "generator/launch/kernel_launch.h"
#include "generator/launch/tensor_maps.h"
#include "generator/launch/work_order.h"
#include "runtime/launch.h"
#include "templates/forward_wgmma/smem_layout.cuh"
#include "templates/forward_wgmma/tensor_maps.cuh"

namespace jit {
namespace {

using namespace forward_wgmma;

TensorMaps encode_maps(const AttentionSpec& spec, const ForwardWgmma& config, const AttentionParams& params) {
  const MappedTensors maps =
      map_tensors(spec, {.rows_q = rows_per_warpgroup, .rows_kv = config.tile_kv}, params);
  return {.q = maps.q, .k = maps.k, .v = maps.v, .o = maps.o, .counter = nullptr, .order = {}};
}

// Batch entries that one launch takes.
int entries_of_launch(const KernelLaunch& launch, const ForwardWgmma& config, int resident) {
  const AttentionParams& params = launch.params;
  const std::int64_t tiles = std::int64_t{ceil_div(params.seqlen_q, config.tile_q)} * params.heads_q;
  const int entries = static_cast<int>(std::min<std::int64_t>(params.batch, max_work_tiles / tiles));
  if (!config.persistent || !has_key_words(launch.spec)) return entries;
  return std::min(entries,
                  entries_with_key_words(ceil_div(params.seqlen_kv, config.tile_kv), tiles, resident));
}

}  // namespace

// A grid of one dimension over the list of work tiles: a block for each, or as many as fit the GPU, which
// share them out among themselves.
void Family<ForwardWgmma>::launch(const KernelLaunch& launch, const ForwardWgmma& config) {
  const LoadedKernel& kernel = launch.kernel;
  AttentionParams& params = launch.params;
  const int resident = kernel.sm_count * config.blocks_per_sm;
  const int entries = entries_of_launch(launch, config, resident);
  TensorMaps maps = encode_maps(launch.spec, config, params);
  if (config.persistent) maps.counter = launch.memory.counter();
  LaunchConfig grid{
      .block = {kernel.threads, 1, 1}, .smem_bytes = kernel.smem_bytes, .dependent = config.dependent_launch};
  void* arguments[] = {&params, &maps};
  for (params.batch_begin = 0; params.batch_begin < params.batch; params.batch_begin += entries) {
    const int count = std::min(params.batch - params.batch_begin, entries);
    maps.order = work_order(launch.spec, {.seqlen_q = params.seqlen_q,
                                          .seqlen_kv = params.seqlen_kv,
                                          .slices = count * params.heads_q,
                                          .tile_q = config.tile_q,
                                          .l2_bytes = kernel.l2_bytes});
    grid.grid[0] = static_cast<unsigned>(config.persistent ? std::min(maps.order.tiles(), resident)
                                                           : maps.order.tiles());
    try {
      jit::launch(kernel.kernel.handle(), grid, arguments, launch.stream);
    } catch (const Error&) {
      if (maps.counter != nullptr) launch.memory.reset_counter();
      throw;
    }
  }
}

}  // namespace jit
