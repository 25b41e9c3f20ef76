#include "generator/launch/split_work.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include <fmt/format.h>
#include <jit/error.h>

#include "generator/functors/functor_tensors.h"
#include "generator/functors/score_mask.h"
#include "generator/launch/ceil_div.h"
#include "runtime/launch.h"
#include "templates/scheduling/key_shares.cuh"
#include "templates/scheduling/key_spans.cuh"
#include "templates/scheduling/request_kinds.cuh"
#include "templates/split_keys/span_tree.cuh"

namespace jit {
namespace {

constexpr int most_split_blocks = StreamLease::max_counters;

// The most splits of a sequence's keys: a split has at least a tile, or with split_keys a span.
std::int64_t most_ranges(const AttentionSpec& spec, const SplitTiles& tiles, const AttentionParams& params) {
  return std::max(1, ceil_div(params.seqlen_kv, std::max(tiles.tile_kv, spec.split_keys)));
}

int levels_of(const AttentionSpec& spec, const SplitTiles& tiles, const AttentionParams& params) {
  return span_levels(static_cast<int>(most_ranges(spec, tiles, params)));
}

// Upper bound of tiles of rows: each batch entry may have a partial one.
std::int64_t row_tiles(const AttentionSpec& spec, const SplitTiles& tiles, const AttentionParams& params) {
  std::int64_t queries = spec.sequences_q == SequenceKind::varlen
                             ? params.sequences.total_q
                             : std::int64_t{params.batch} * params.seqlen_q;
  if (tiles.requests == Requests::few_queries)
    queries = std::min(queries, std::int64_t{params.batch} * few_queries);
  return std::min<std::int64_t>(queries, params.batch) + queries * spec.gqa_ratio / tiles.tile_rows;
}

// Rejects tile spaces longer than kernels can count with 32 bits. Lengths on the device may make one shorter,
// which the host cannot know.
void check_tile_space(const AttentionSpec& spec, const SplitTiles& tiles, const AttentionParams& params,
                      std::string_view family) {
  const double tiles_kv = std::ceil(static_cast<double>(params.seqlen_kv) / tiles.tile_kv);
  const double length = static_cast<double>(row_tiles(spec, tiles, params)) * params.heads_kv *
                        (tile_cost * tiles_kv + work_tile_cost);
  const double rows = static_cast<double>(params.seqlen_q) * spec.gqa_ratio;  // of one sequence, at most
  if (length <= longest_tile_space && rows <= longest_tile_space) return;
  throw Error(
      ErrorCode::invalid_argument, "launch", "q",
      fmt::format(
          "q: so many queries and keys are more work than a launch of {} counts, by {:.1f} times; give "
          "fewer sequences at once",
          family, std::max(length, rows) / longest_tile_space));
}

// Rows of a partial result, at most those of a sequence. An even number aligns results.
int partial_rows(const AttentionSpec& spec, const SplitTiles& tiles, const AttentionParams& params) {
  const int longest =
      tiles.requests == Requests::few_queries ? std::min(params.seqlen_q, few_queries) : params.seqlen_q;
  const std::int64_t rows = std::int64_t{longest} * spec.gqa_ratio;
  return static_cast<int>(std::min<std::int64_t>(tiles.tile_rows, (rows + 1) / 2 * 2));
}

// Number of lists, each a batch entry, whose lengths blocks read before they begin; more would take too long.
constexpr int most_measured_lists = 2048;

// Whether each query sees all keys of its batch entry, and all entries have the tensors' lengths. With many
// lists, assumes that all are full: blocks skip missing keys.
bool all_are_alike(const AttentionSpec& spec, const AttentionParams& params) {
  if (has_lists(spec))
    return params.batch > most_measured_lists && params.sequences.total_q % spec.list_queries == 0;
  const SequenceParams& given = params.sequences;
  return spec.sequences_q == SequenceKind::dense && spec.sequences_kv == SequenceKind::dense &&
         given.seqused_q == nullptr && given.seqused_k == nullptr && given.cache_leftpad == nullptr &&
         score_mask(spec.score) == nullptr &&
         (spec.mask == mask::none() ||
          (params.seqlen_q == 1 && spec.mask == mask::causal() && !has_positions(spec)));
}

// Whether the other kernel has several tiles of queries per SM, so that it can start some of them later. An
// estimate: the host knows the number of queries in excess of one per request, but not their requests.
bool has_many_tiles_beside(const AttentionParams& params, int sm_count) {
  constexpr std::int64_t usual_tile_q = 128;
  const std::int64_t queries = params.sequences.total_q - params.batch;
  return ceil_div(queries, usual_tile_q) * params.heads_q > sm_count;
}

// Whether an SM loads faster than its share of the memory bandwidth while not all SMs load. Smaller boxes are
// bound by the latency of copies: 16 rows of a page take about as long as at full load of the memory.
bool draws_more_than_its_share(const SplitTiles& tiles) { return tiles.box_rows >= 32; }

// Blocks of the launches that share a tile space. Next to a kernel with many tiles, it is one launch: SMs
// take its tiles when they finish decoding, and some blocks exit at once if that does not slow decoding as
// much. Next to a kernel with few, long tiles, it is two halves, before and after that kernel, which gets the
// SMs that a half leaves free.
struct TileSpaceLaunches {
  int first;
  int second;
  bool gives_way;
};
TileSpaceLaunches tile_space_launches(const SplitTiles& tiles, const AttentionParams& params, int blocks,
                                      int sm_count) {
  if (tiles.requests == Requests::all) return {blocks, 0, false};
  if (has_many_tiles_beside(params, sm_count)) return {blocks, 0, draws_more_than_its_share(tiles)};
  const int first = std::max(1, blocks / 2);
  return {first, std::max(1, blocks - first), false};
}

KnownTileSpace known_tile_space(const AttentionSpec& spec, const SplitTiles& tiles,
                                const AttentionParams& params, int blocks) {
  constexpr int most_work_tiles = 1 << 20;  // of small_quotient
  const std::int64_t row_tiles =
      ceil_div(std::int64_t{params.seqlen_q} * spec.gqa_ratio, std::int64_t{tiles.tile_rows});
  const std::int64_t work_tiles = row_tiles * params.heads_kv;
  KnownTileSpace tile_space{.shares = {}, .tiles = -1, .work_tiles = 0, .row_tiles = 0};
  if (!all_are_alike(spec, params) || work_tiles * params.batch >= most_work_tiles) return tile_space;
  tile_space = {.shares = {},
                .tiles = ceil_div(params.seqlen_kv, tiles.tile_kv),
                .work_tiles = static_cast<int>(work_tiles),
                .row_tiles = static_cast<int>(row_tiles)};
  TileSpace size = {.total = static_cast<int>(work_tiles * params.batch * work_tile_length(tile_space.tiles)),
                    .shares_keys = row_tiles > 1,
                    .least_tiles = tile_space.tiles,
                    .most_tiles = tile_space.tiles};
  int score = 0;
  for (int strands = 1; strands <= most_strands; ++strands)
    score = std::max(score, strands_score(strands, strands_of_rows(tile_space.row_tiles), blocks));
  size.strands = strands_of_score(score);
  const int num_splits = params.sequences.num_splits;
  tile_space.shares = spec.split_keys != 0
                          ? span_shares(size, blocks, num_splits, spec.split_keys / tiles.tile_kv)
                          : key_shares(size, blocks, num_splits);
  tile_space.work_tiles /= tile_space.shares.strands;
  tile_space.row_tiles /= tile_space.shares.strands;
  return tile_space;
}

}  // namespace

int split_blocks(const AttentionSpec& spec, const SplitTiles& tiles, const AttentionParams& params,
                 int sm_count) {
  const std::int64_t ranges = most_ranges(spec, tiles, params);
  const std::int64_t resident = std::int64_t{sm_count} * tiles.blocks_per_sm;
  const std::int64_t work_tiles = std::min(resident, row_tiles(spec, tiles, params) * params.heads_kv);
  const std::int64_t most = std::min<std::int64_t>(resident, most_split_blocks);
  const std::int64_t blocks = std::clamp<std::int64_t>(work_tiles * std::min(resident, ranges), 1, most);
  return static_cast<int>(std::max<std::int64_t>(blocks / tiles.cluster, 1)) * tiles.cluster;
}

SplitLaunch split_launch(const KernelLaunch& launch, const SplitTiles& tiles, std::string_view family) {
  check_tile_space(launch.spec, tiles, launch.params, family);
  // Blocks of a work tile wait for one another: all are resident, which GPCs may have no room for in clusters.
  const int resident = tiles.cluster > 1 ? std::min(launch.kernel.sm_count, launch.kernel.resident_blocks)
                                         : launch.kernel.sm_count;
  const int wanted = split_blocks(launch.spec, tiles, launch.params, resident);
  const TileSpaceLaunches launches =
      tile_space_launches(tiles, launch.params, wanted, launch.kernel.sm_count);
  const int blocks = launches.first + launches.second;
  const int rows = partial_rows(launch.spec, tiles, launch.params);
  const bool has_spans = launch.spec.split_keys != 0;
  const int head_dim_v = launch.spec.value_head_dim();
  const bool by_all = !has_spans && !launch.spec.o_descale && all_merge(launch.spec.gqa_ratio, head_dim_v);
  const int columns = result_columns(head_dim_v, launch.spec.mean_score);
  const auto floats =
      static_cast<std::size_t>(partial_floats(rows, columns, column_slices_of_row(by_all, columns)));
  const int levels = has_spans ? levels_of(launch.spec, tiles, launch.params) : 0;
  const int places = has_spans ? split_nodes(levels) * blocks : most_partials(blocks);
  const std::size_t words = static_cast<std::size_t>(places) * floats;
  const std::size_t bytes = (words + (by_all ? notice_words(blocks) : 0)) * sizeof(float);
  void* partials = launch.turn > 0 ? *launch.mailbox : nullptr;
  if (partials == nullptr) {
    partials = has_spans ? launch.memory.workspace(bytes) : launch.memory.mailbox(bytes);
    if (launch.mailbox != nullptr) *launch.mailbox = partials;
  }
  auto* const counters = has_spans ? reinterpret_cast<unsigned*>(launch.memory.counters(blocks)) : nullptr;
  return {launch.turn > 0 ? launches.second : launches.first,
          {.partials = static_cast<float*>(partials),
           .partial_rows = rows,
           .notices = by_all ? static_cast<unsigned*>(partials) + words : nullptr,
           .known = known_tile_space(launch.spec, tiles, launch.params, blocks),
           .counters = counters,
           .levels = levels,
           .tile_space_blocks = blocks,
           .blocks_before = launch.turn > 0 ? launches.first : 0,
           .gives_way = launches.gives_way}};
}

void launch_split(const KernelLaunch& launch, const SplitLaunch& split, void** arguments, bool dependent) {
  const LoadedKernel& kernel = launch.kernel;
  jit::launch(kernel.kernel.handle(),
              {.grid = {static_cast<unsigned>(split.blocks), 1, 1},
               .block = {kernel.threads, 1, 1},
               .smem_bytes = kernel.smem_bytes,
               .dependent = dependent},
              arguments, launch.stream);
}

}  // namespace jit
