#include <algorithm>
#include <cstdint>

#include <fmt/format.h>
#include <jit/error.h>

#include "generator/kernels/forward_split_cluster/family.h"
#include "generator/launch/kernel_launch.h"
#include "runtime/launch.h"
#include "templates/split_keys/warp_layout.cuh"

namespace jit {
namespace {

constexpr std::int64_t most_rows = 0x7fffffff;

// Packed rows of all queries of a KV head, and an upper bound of their tiles.
struct RowTiles {
  std::int64_t rows;
  std::int64_t places;
};
RowTiles row_tiles(const AttentionSpec& spec, const AttentionParams& params) {
  if (spec.sequences_q == SequenceKind::varlen) {
    const std::int64_t rows = std::int64_t{params.sequences.total_q} * spec.gqa_ratio;
    return {rows, rows / rows_per_warp + params.batch};
  }
  const std::int64_t rows = std::int64_t{params.seqlen_q} * spec.gqa_ratio;
  return {rows, params.batch * ((rows + rows_per_warp - 1) / rows_per_warp)};
}

}  // namespace

void Family<ForwardSplitCluster>::launch(const KernelLaunch& launch, const ForwardSplitCluster& config) {
  const RowTiles tiles = row_tiles(launch.spec, launch.params);
  const std::int64_t places_side_by_side =
      std::max<std::int64_t>(1, (tiles.places + max_grid_yz - 1) / max_grid_yz);
  if (launch.params.heads_kv > max_grid_yz) {  // with a given config
    throw Error(
        ErrorCode::invalid_argument, "launch", "k",
        fmt::format("k: has {} heads, more than the {} that a launch of {} takes; give no config, and "
                    "another is chosen",
                    launch.params.heads_kv, max_grid_yz, name));
  }
  const std::int64_t warps = (tiles.places + places_side_by_side) * config.cluster * launch.params.heads_kv *
                             (launch.kernel.threads / 32);
  if (std::max(tiles.rows, warps) > most_rows) {  // kernels count them in 32 bits
    throw Error(
        ErrorCode::invalid_argument, "launch", "q",
        fmt::format(
            "q: its {} tiles of {} rows are more than a launch of {} takes; give fewer sequences at once",
            tiles.places, rows_per_warp, name));
  }
  void* arguments[] = {&launch.params};
  jit::launch(
      launch.kernel.kernel.handle(),
      {.grid = {static_cast<unsigned>(places_side_by_side * config.cluster),
                static_cast<unsigned>(launch.params.heads_kv),
                static_cast<unsigned>((tiles.places + places_side_by_side - 1) / places_side_by_side)},
       .block = {launch.kernel.threads, 1, 1},
       .smem_bytes = launch.kernel.smem_bytes,
       .dependent = true},
      arguments, launch.stream);
}

}  // namespace jit
