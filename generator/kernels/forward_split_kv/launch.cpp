#include <algorithm>
#include <cmath>
#include <cstdint>

#include <fmt/format.h>
#include <jit/error.h>

#include "generator/kernels/forward_split_kv/family.h"
#include "generator/launch/ceil_div.h"
#include "generator/launch/kernel_launch.h"
#include "runtime/launch.h"
#include "templates/forward_split_kv/split_params.cuh"
#include "templates/scheduling/key_shares.cuh"

namespace jit {
namespace {

// Tiles of rows of all batch entries, each of which may fill one in part.
std::int64_t row_tiles(const AttentionSpec& spec, const ForwardSplitKv& config,
                       const AttentionParams& params) {
  const std::int64_t tile_rows = config.row_warps * forward_split_kv::rows_per_warp;
  const std::int64_t queries = spec.sequences_q == SequenceKind::ragged
                                   ? params.sequences.total_q
                                   : std::int64_t{params.batch} * params.seqlen_q;
  return std::min<std::int64_t>(queries, params.batch) + queries * spec.gqa_ratio / tile_rows;
}

// The line of work that kernels count is as long as 32 bits allow. What is on the device may make it shorter, which the
// host cannot know.
void check_line(const AttentionSpec& spec, const ForwardSplitKv& config, const AttentionParams& params) {
  const double tiles = std::ceil(static_cast<double>(params.seqlen_kv) / config.tile_kv);
  const double length = static_cast<double>(row_tiles(spec, config, params)) * params.heads_kv *
                        (tile_cost * tiles + unit_cost);
  const double rows = static_cast<double>(params.seqlen_q) * spec.gqa_ratio;  // of one sequence, at most
  if (length <= longest_line && rows <= longest_line) return;
  throw Error(
      ErrorCode::invalid_argument, "launch", "q",
      fmt::format(
          "q: so many queries and keys are more work than a launch of {} counts, by {:.1f} times; give "
          "fewer sequences at once",
          Family<ForwardSplitKv>::name, std::max(length, rows) / longest_line));
}

// As many blocks as stay on the GPU, but no more than there can be tiles of keys.
int block_count(const AttentionSpec& spec, const ForwardSplitKv& config, const AttentionParams& params,
                int sm_count) {
  const std::int64_t tiles_kv = std::max(1, ceil_div(params.seqlen_kv, config.tile_kv));
  const std::int64_t resident = std::int64_t{sm_count} * config.blocks_per_sm;
  const std::int64_t units = std::min(resident, row_tiles(spec, config, params) * params.heads_kv);
  const std::int64_t most = std::min<std::int64_t>(resident, StreamMemory::max_counters);
  return static_cast<int>(std::clamp<std::int64_t>(units * std::min(resident, tiles_kv), 1, most));
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
  check_line(launch.spec, config, launch.params);
  const int blocks = block_count(launch.spec, config, launch.params, kernel.sm_count);
  forward_split_kv::SplitParams split{
      .partials = static_cast<float*>(launch.workspace),
      .counters = reinterpret_cast<unsigned*>(launch.memory.counters(kernel.device, launch.stream, blocks))};
  void* arguments[] = {&launch.params, &split};
  try {
    jit::launch(kernel.kernel.handle(),
                {.grid = {static_cast<unsigned>(blocks), 1, 1},
                 .block = {kernel.threads, 1, 1},
                 .smem_bytes = kernel.smem_bytes},
                arguments, launch.stream);
  } catch (const Error&) {
    launch.memory.reset_counter(kernel.device, launch.stream);
    throw;
  }
}

}  // namespace jit
