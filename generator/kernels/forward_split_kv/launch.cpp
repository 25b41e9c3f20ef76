#include <algorithm>
#include <cstdint>

#include "generator/kernels/forward_split_kv/family.h"
#include "generator/launch/ceil_div.h"
#include "generator/launch/kernel_launch.h"
#include "runtime/launch.h"
#include "templates/forward_split_kv/split_params.cuh"

namespace jit {
namespace {

// As many blocks as stay on the GPU, but no more than there can be tiles of keys.
int block_count(const AttentionSpec& spec, const ForwardSplitKv& config, const AttentionParams& params,
                int sm_count) {
  const int tile_rows = config.row_warps * forward_split_kv::rows_per_warp;
  const std::int64_t total_q =
      spec.sequences_q == SequenceKind::ragged ? params.sequences.total_q : std::int64_t{params.batch} * params.seqlen_q;
  // Of each batch entry one tile may be filled in part.
  const std::int64_t row_tiles = std::min<std::int64_t>(total_q, params.batch) + total_q * spec.gqa_ratio / tile_rows;
  const std::int64_t tiles_kv = std::max(1, ceil_div(params.seqlen_kv, config.tile_kv));
  const std::int64_t resident = std::int64_t{sm_count} * config.blocks_per_sm;
  const std::int64_t units = std::min(resident, row_tiles * params.heads_kv);
  return static_cast<int>(std::clamp<std::int64_t>(units * std::min(resident, tiles_kv), 1, resident));
}

}  // namespace

std::size_t Family<ForwardSplitKv>::workspace_bytes(const AttentionSpec& spec, const ForwardSplitKv& config,
                                                    const AttentionParams& params, int sm_count) {
  const std::size_t floats =
      static_cast<std::size_t>(forward_split_kv::partial_floats(config.row_warps, spec.value_head_dim()));
  return 2 * static_cast<std::size_t>(block_count(spec, config, params, sm_count)) * floats * sizeof(float);
}

void Family<ForwardSplitKv>::launch(const KernelLaunch& launch, const ForwardSplitKv& config) {
  const LoadedKernel& kernel = launch.kernel;
  const int blocks = block_count(launch.spec, config, launch.params, kernel.sm_count);
  forward_split_kv::SplitParams split{
      .partials = static_cast<float*>(launch.workspace),
      .counters = reinterpret_cast<unsigned*>(launch.memory.counters(kernel.device, launch.stream, blocks))};
  void* arguments[] = {&launch.params, &split};
  jit::launch(kernel.kernel.handle(),
              {.grid = {static_cast<unsigned>(blocks), 1, 1},
               .block = {kernel.threads, 1, 1},
               .smem_bytes = kernel.smem_bytes},
              arguments, launch.stream);
}

}  // namespace jit
