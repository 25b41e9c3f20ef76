#include "generator/launch/split_work.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include <fmt/format.h>
#include <jit/error.h>

#include "generator/launch/ceil_div.h"
#include "templates/scheduling/key_shares.cuh"

namespace jit {
namespace {

constexpr int most_split_blocks = StreamMemory::max_counters / split_counters(1);
static_assert(split_counters(most_split_blocks) <= StreamMemory::max_counters);

// Tiles of rows of all batch entries, each of which may fill one in part.
std::int64_t row_tiles(const AttentionSpec& spec, const SplitTiles& tiles, const AttentionParams& params) {
  const std::int64_t queries = spec.sequences_q == SequenceKind::ragged
                                   ? params.sequences.total_q
                                   : std::int64_t{params.batch} * params.seqlen_q;
  return std::min<std::int64_t>(queries, params.batch) + queries * spec.gqa_ratio / tiles.tile_rows;
}

// The line of work that kernels count is as long as 32 bits allow. What is on the device may make it shorter, which the
// host cannot know.
void check_line(const AttentionSpec& spec, const SplitTiles& tiles, const AttentionParams& params,
                std::string_view family) {
  const double tiles_kv = std::ceil(static_cast<double>(params.seqlen_kv) / tiles.tile_kv);
  const double length = static_cast<double>(row_tiles(spec, tiles, params)) * params.heads_kv *
                        (tile_cost * tiles_kv + unit_cost);
  const double rows = static_cast<double>(params.seqlen_q) * spec.gqa_ratio;  // of one sequence, at most
  if (length <= longest_line && rows <= longest_line) return;
  throw Error(
      ErrorCode::invalid_argument, "launch", "q",
      fmt::format(
          "q: so many queries and keys are more work than a launch of {} counts, by {:.1f} times; give "
          "fewer sequences at once",
          family, std::max(length, rows) / longest_line));
}

}  // namespace

int split_blocks(const AttentionSpec& spec, const SplitTiles& tiles, const AttentionParams& params,
                 int sm_count) {
  const std::int64_t tiles_kv = std::max(1, ceil_div(params.seqlen_kv, tiles.tile_kv));
  const std::int64_t resident = std::int64_t{sm_count} * tiles.blocks_per_sm;
  const std::int64_t units = std::min(resident, row_tiles(spec, tiles, params) * params.heads_kv);
  const std::int64_t most = std::min<std::int64_t>(resident, most_split_blocks);
  return static_cast<int>(std::clamp<std::int64_t>(units * std::min(resident, tiles_kv), 1, most));
}

std::size_t split_workspace_bytes(const AttentionSpec& spec, const SplitTiles& tiles,
                                  const AttentionParams& params, int sm_count) {
  const auto floats = static_cast<std::size_t>(partial_floats(tiles.tile_rows, spec.value_head_dim()));
  const int places = most_partials(split_blocks(spec, tiles, params, sm_count));
  return static_cast<std::size_t>(places) * floats * sizeof(float);
}

SplitLaunch split_launch(const KernelLaunch& launch, const SplitTiles& tiles, std::string_view family) {
  check_line(launch.spec, tiles, launch.params, family);
  const int blocks = split_blocks(launch.spec, tiles, launch.params, launch.kernel.sm_count);
  return {blocks,
          {.partials = static_cast<float*>(launch.workspace),
           .counters = reinterpret_cast<unsigned*>(launch.memory.counters(split_counters(blocks)))}};
}

}  // namespace jit
