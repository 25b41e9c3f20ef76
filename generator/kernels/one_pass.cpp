#include <algorithm>
#include <utility>

#include <jit/error.h>

#include "generator/functors/functor_node.h"
#include "generator/functors/functor_tensors.h"
#include "generator/kernels/one_pass.h"
#include "generator/launch/kernel_launch.h"
#include "generator/launch/query_statistics.h"
#include "generator/launch/raw_gradient.h"
#include "generator/launch/sequence_grid.h"
#include "generator/launch/tensor_maps.h"
#include "runtime/launch.h"
#include "templates/backward/tensor_maps.cuh"

namespace jit::one_pass {
namespace {

constexpr std::size_t sums_alignment = 256;

// Queries with memory for LSE, delta and sums: whole tiles per head.
std::size_t padded_queries(const AttentionSpec& spec, const Shape& shape, const AttentionParams& params) {
  const SequenceGrid blocks = query_grid(spec, params, shape.tile_q);
  return static_cast<std::size_t>(blocks.entries) * static_cast<std::size_t>(params.heads_q) *
         static_cast<std::size_t>(blocks.tiles) * static_cast<std::size_t>(shape.tile_q);
}

std::size_t padded_query_tiles(const AttentionSpec& spec, const Shape& shape, const AttentionParams& params) {
  return padded_queries(spec, shape, params) / static_cast<std::size_t>(shape.tile_q);
}

// LSE and delta of each query, with mean_score the gradient of its mean.
std::size_t statistics_of_query(const AttentionSpec& spec) { return spec.mean_score ? 3 : 2; }

// Words that the table has of each tile of queries: a range of words or positions, or of both.
std::size_t range_words(const AttentionSpec& spec) { return has_positions(spec) ? 4 : 2; }

// Bytes of these statistics, of perhaps an origin of each query, and of these words.
std::size_t statistics_bytes(const AttentionSpec& spec, const Shape& shape, const AttentionParams& params) {
  const std::size_t bytes =
      padded_queries(spec, shape, params) * (statistics_of_query(spec) * sizeof(float) + sizeof(RowOrigin)) +
      range_words(spec) * padded_query_tiles(spec, shape, params) * sizeof(int);
  return (bytes + sums_alignment - 1) / sums_alignment * sums_alignment;
}

std::size_t sum_floats(const AttentionSpec& spec, const Shape& shape, const AttentionParams& params) {
  return padded_queries(spec, shape, params) * static_cast<std::size_t>(shape.sum_columns);
}

// Bytes of the table of turns.
std::size_t turn_bytes(const AttentionSpec& spec, const Shape& shape, const AttentionParams& params) {
  const int key_tiles = key_grid(spec, params, shape.tile_kv).tiles;
  const std::size_t each = is_plain(spec)
                               ? static_cast<std::size_t>(padded_turn_counts(key_tiles)) * sizeof(int)
                               : static_cast<std::size_t>(padded_turn_words(key_tiles)) * sizeof(TurnWord);
  return padded_query_tiles(spec, shape, params) * each;
}

void place_workspace(const KernelLaunch& launch, const Shape& shape) {
  GradientParams& gradients = *launch.gradients;
  gradients.lse_log2 = static_cast<float*>(launch.workspace);
  const std::size_t queries = padded_queries(launch.spec, shape, launch.params);
  gradients.delta = gradients.lse_log2 + queries;
  gradients.origins =
      reinterpret_cast<RowOrigin*>(gradients.lse_log2 + statistics_of_query(launch.spec) * queries);
  gradients.query_ranges = reinterpret_cast<int*>(gradients.origins + queries);
  place_large_rows(launch.memory, padded_query_tiles(launch.spec, shape, launch.params), gradients);
  gradients.dq_sums =
      gradients.lse_log2 + statistics_bytes(launch.spec, shape, launch.params) / sizeof(float);
}

// The order in which blocks that share heads visit tiles of queries.
HeadVisits head_visits(const KernelLaunch& launch, const Shape& shape, int takers) {
  const AttentionSpec& spec = launch.spec;
  const AttentionParams& params = launch.params;
  const bool is_whole = spec.mask == mask::none();
  const int key_tiles = key_grid(spec, params, shape.tile_kv).tiles;
  const int query_tiles = query_grid(spec, params, shape.tile_q).tiles;
  // Limits sharers, so that the next block to add to a query tile arrives about a step after the previous
  // addition is visible, which takes longer than a step of small head dims.
  const int steps_apart = shape.sum_columns <= 64 ? 4 : 2;
  const int most_sharers = is_whole ? query_tiles / steps_apart : key_tiles;
  const HeadShares shares = head_shares(params.batch * params.heads_kv, key_tiles, takers, most_sharers);
  return {.query_tiles = query_tiles,
          .sharers = shares.sharers,
          .heads_at_once = shares.heads_at_once,
          .rounds = (key_tiles + shares.sharers - 1) / shares.sharers,
          .spacing = std::max(1, query_tiles / (is_whole ? shares.sharers : std::max(1, key_tiles))),
          .is_whole = is_whole};
}

// Tiles of keys of a head or, where only the device knows lengths, of an average sequence.
int tiles_of_sequence(const AttentionSpec& spec, const Shape& shape, const AttentionParams& params) {
  const SequenceGrid grid = key_grid(spec, params, shape.tile_kv);
  return grid.entries == params.batch ? grid.tiles : std::max(1, grid.tiles / params.batch);
}

DrawnHeads drawn_heads(const KernelLaunch& launch, const Shape& shape, int takers) {
  const AttentionParams& params = launch.params;
  const int entries = key_grid(launch.spec, params, shape.tile_kv).entries;
  return heads_drawn(launch.spec, entries * params.heads_kv, tiles_of_sequence(launch.spec, shape, params),
                     takers);
}

Turns find_turns(const KernelLaunch& launch, const Shape& shape, int takers) {
  float* const turns = launch.gradients->dq_sums + sum_floats(launch.spec, shape, launch.params);
  const std::size_t bytes = turn_bytes(launch.spec, shape, launch.params);
  int* const additions = reinterpret_cast<int*>(turns) + bytes / sizeof(int);
  const bool in_rounds = shares_heads(launch.spec), has_counts = is_plain(launch.spec);
  return {.visits = in_rounds ? head_visits(launch, shape, takers) : HeadVisits{},
          .additions = additions,
          .before = has_counts ? reinterpret_cast<int*>(turns) : nullptr,
          .words = has_counts ? nullptr : reinterpret_cast<TurnWord*>(turns),
          .heads_from_last = in_rounds ? 0 : drawn_heads(launch, shape, takers).from_last};
}

// Whether so many blocks share a head that a few concurrent calls could deadlock: each occupies some SMs,
// with blocks that wait for others without an SM. Then all blocks must be co-resident. With few sharers per
// head, that would need more calls, each blocked within a head.
bool waits_for_many(const KernelLaunch& launch, const Shape& shape, const Turns& turns) {
  constexpr int calls_side_by_side = 8;
  return turns.visits.sharers * shape.blocks_per_tile > launch.kernel.sm_count / calls_side_by_side;
}

// Calls `launch_tiles` for batches of entries that fit a one-dimensional grid, with their number of tiles, of
// which each entry has `heads` times those of the sequence; varlen sequences are one entry.
template <class LaunchTiles>
void for_entries_of_a_grid(AttentionParams& params, int heads, const SequenceGrid& grid,
                           LaunchTiles launch_tiles) {
  const std::int64_t tiles_per_entry = std::int64_t{heads} * grid.tiles;
  if (tiles_per_entry == 0 || grid.entries == 0) return;
  const int entries =
      static_cast<int>(std::clamp<std::int64_t>(max_work_tiles / tiles_per_entry, 1, grid.entries));
  for (params.batch_begin = 0; params.batch_begin < grid.entries; params.batch_begin += entries) {
    const int count = std::min(grid.entries - params.batch_begin, entries);
    launch_tiles(static_cast<int>(count * tiles_per_entry));
  }
}

// Launches blocks: `dependent` if they wait for the previous kernel themselves, `cooperative` if they take
// turns.
void launch_blocks(const KernelLaunch& launch, int blocks, void** arguments, bool dependent,
                   bool cooperative = false) {
  const LaunchConfig grid{.grid = {static_cast<unsigned>(blocks), 1, 1},
                          .block = {launch.kernel.threads, 1, 1},
                          .smem_bytes = launch.kernel.smem_bytes,
                          .dependent = dependent,
                          .cooperative = cooperative};
  jit::launch(launch.kernel.kernel.handle(), grid, arguments, launch.stream);
}

// Kernels have two parameters, followed by `turns` or `raw` if not null.
void launch_queries(const KernelLaunch& launch, const Shape& shape, bool dependent, Turns* turns = nullptr,
                    RawGradient* raw = nullptr) {
  void* const third = turns != nullptr ? static_cast<void*>(turns) : raw;
  void* arguments[] = {&launch.params, launch.gradients, third, raw};
  for_entries_of_a_grid(launch.params, launch.params.heads_q,
                        query_grid(launch.spec, launch.params, shape.tile_q),
                        [&](int tiles) { launch_blocks(launch, tiles, arguments, dependent); });
}

// The number of blocks, or resident pairs of blocks, that share the tiles of keys.
int takers(const LoadedKernel& kernel, const Shape& shape) {
  return shape.blocks_per_tile > 1 ? std::max(1, kernel.resident_blocks / 2) : kernel.sm_count;
}

void launch_prepare(const KernelLaunch& launch, const Shape& shape, int takers, RawGradient* raw) {
  place_workspace(launch, shape);
  if (shape.deterministic) {
    Turns turns = find_turns(launch, shape, takers);
    launch_queries(launch, shape, true, &turns, raw);
  } else {
    launch_queries(launch, shape, true, nullptr, raw);
  }
}

// Afterwards, launch.gradients has the gradient of o before the functor.
void launch_prepare_of_output(const AttentionSpec& spec, const KernelLaunch& launch, const Shape& shape,
                              int takers) {
  RawGradient raw = raw_gradient(spec, launch.params, launch.kept);
  launch_prepare(launch, shape, takers, &raw);
  launch.gradients->d_o = raw.data;
  launch.gradients->do_strides = raw.strides;
}

void launch_convert(const KernelLaunch& launch, const Shape& shape) {
  place_workspace(launch, shape);
  launch_queries(launch, shape, false);
}

// Workspace bytes of all data between a call's kernels, except the dropout mask.
std::size_t gradient_bytes(const AttentionSpec& spec, const Shape& shape, const AttentionParams& params) {
  const std::size_t turns = shape.deterministic ? padded_query_tiles(spec, shape, params) * sizeof(int) +
                                                      turn_bytes(spec, shape, params)
                                                : 0;
  const std::size_t bytes =
      statistics_bytes(spec, shape, params) + sum_floats(spec, shape, params) * sizeof(float) + turns;
  return (bytes + sums_alignment - 1) / sums_alignment * sums_alignment;
}

}  // namespace

FamilySteps steps(const AttentionSpec& spec, const Shape& shape, Program prepare, Program convert) {
  const auto launches_prepare = [spec, shape](const LoadedKernel& main) -> StepLaunch {
    const int all = takers(main, shape);
    if (!spec.output.is_none())
      return [spec, shape, all](const KernelLaunch& launch) {
        launch_prepare_of_output(spec, launch, shape, all);
      };
    return [shape, all](const KernelLaunch& launch) { launch_prepare(launch, shape, all, nullptr); };
  };
  const auto launches_convert = [shape](const LoadedKernel&) -> StepLaunch {
    return [shape](const KernelLaunch& launch) { launch_convert(launch, shape); };
  };
  return {.before = {{std::move(prepare), launches_prepare}},
          .behind = {{std::move(convert), launches_convert}}};
}

std::size_t workspace_bytes(const AttentionSpec& spec, const Shape& shape, const AttentionParams& params) {
  return gradient_bytes(spec, shape, params) +
         (shape.dropout_mask ? dropout_mask_bytes(params, *shape.dropout_mask) : 0);
}

// Launches one block per SM, which share the key tiles of all KV heads; blocks that wait for one another
// share heads. Kernels of dense sequences take TensorMaps, the first part of SequenceMaps.
void launch(const KernelLaunch& launch, const Shape& shape) {
  if (launch.params.seqlen_kv == 0 || launch.params.batch == 0) return;
  place_workspace(launch, shape);
  const SequenceGrid key_tiles = key_grid(launch.spec, launch.params, shape.tile_kv);
  const MapBoxes boxes{.rows_q = shape.tile_q,
                       .rows_kv = shape.tile_kv / shape.blocks_per_tile,
                       .rows_dkv = shape.gradient_rows};
  const MappedGradients mapped = map_gradients(launch.spec, boxes, launch.params, *launch.gradients);
  SequenceMaps maps = {};
  maps.q = mapped.q;
  maps.k = mapped.k;
  maps.v = mapped.v;
  maps.d_o = mapped.d_o;
  maps.dk = mapped.dk;
  maps.dv = mapped.dv;
  maps.schedule.taken = reinterpret_cast<unsigned*>(launch.memory.counters(KeySchedule::looks_behind + 1));
  const int all_takers = takers(launch.kernel, shape);
  if (shape.deterministic) maps.schedule.turns = find_turns(launch, shape, all_takers);
  if (!is_plain(launch.spec)) {
    const MappedGradients part = map_bounded_gradients(launch.spec, boxes, launch.params, *launch.gradients);
    maps.bounded_q = part.q;
    maps.bounded_k = part.k;
    maps.bounded_v = part.v;
    maps.bounded_do = part.d_o;
    maps.bounded_dk = part.dk;
    maps.bounded_dv = part.dv;
  }
  AttentionParams params = launch.params;
  if (shape.dropout_mask) {
    params = launch_dropout_mask(
        launch, *shape.dropout_mask,
        static_cast<std::byte*>(launch.workspace) + gradient_bytes(launch.spec, shape, launch.params));
  }
  void* arguments[] = {&params, launch.gradients, &maps};
  for_entries_of_a_grid(params, params.heads_kv, key_tiles, [&](int tiles) {
    const int heads = tiles / key_tiles.tiles;
    const bool in_rounds = shape.deterministic && shares_heads(launch.spec);
    maps.schedule.order = {
        .key_tiles = key_tiles.tiles,
        .heads = heads,
        .heads_together =
            shape.deterministic
                ? drawn_heads(launch, shape, all_takers).together
                : heads_scheduled_together(launch.spec, heads, tiles_of_sequence(launch.spec, shape, params),
                                           all_takers)};
    const int taken = in_rounds
                          ? maps.schedule.turns.visits.sharers * maps.schedule.turns.visits.heads_at_once
                          : std::min(tiles, all_takers);
    launch_blocks(launch, taken * shape.blocks_per_tile, arguments, true,
                  in_rounds && waits_for_many(launch, shape, maps.schedule.turns));
  });
}

}  // namespace jit::one_pass
