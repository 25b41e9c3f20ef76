// The producer warp of a one-pass kernel: it loads tiles of keys and values, and the tiles of queries that see them.
#pragma once

#include "backward/boxes.cuh"
#include "backward/key_tiles.cuh"
#include "backward/key_waits.cuh"
#include "backward/query_infos.cuh"
#include "backward/query_visits.cuh"
#include "ptx/griddepcontrol.cuh"

namespace jit {

/// Loads the steps of a tile of keys; returns the next step. `round` counts tiles. Unless `is_there`, keys are NaN.
template <class Loads, class Pipelines, class Maps, class Config>
JIT_DEVICE unsigned load_steps(const AttentionParams& params, const GradientParams& gradients,
                               const Maps& maps, const KeyTile<Config>& keys, int key_tile, unsigned round,
                               unsigned step, bool is_there, unsigned smem) {
  using Traits = typename Pipelines::Traits;
  const Pipelines pipelines(smem);
  const SequencesOf<Config> sequences = keys.sequences(params);
  const Loads loads(params, gradients, maps, sequences, keys, pipelines);
  const bool elected = lane_id() == 0;
  const int k_end = minimum(keys.k_begin + Config::tile_kv, sequences.kv(keys.batch).length);
  auto tiles = visited_queries<Config>(params, gradients, maps.schedule, sequences, keys, k_end);
  if (tiles.has(0) && !is_there) {
    if constexpr (has_arrivals<Config>) {
      if constexpr (Traits::has_early_values) pipelines.values.producer_acquire(round);
      pipelines.keys.producer_acquire(round);
      loads.poison_keys(round);
      if (elected) {
        store_key_info(pipelines, round, key_tile, true);
        for (int i = 0; i < key_arrivals; ++i) mbarrier_arrive(pipelines.keys.full_at(round));
      }
    }
  } else if (tiles.has(0)) {
    if constexpr (Traits::has_early_values) {
      pipelines.values.producer_acquire(round);  // mutate: ValuesAreOverwritten
      if (elected) loads.load_values(round);
    }
    pipelines.keys.producer_acquire(round);  // mutate: KeysAreOverwritten
    if (elected) {
      store_key_info(pipelines, round, key_tile, true);
      loads.load_keys(round);
      if constexpr (!Traits::has_early_values) loads.load_values(round);
    }
  } else {
    commit_no_queries(pipelines, round, key_tile);
  }
  // mutate: ProducerDoesNotWait
  griddepcontrol_wait();  // for the results of prepare.cuh; keys do not depend on them
  // Keys after the last one are zeros, whose probabilities may be infinite: such tiles must be masked.
  const bool has_end_of_keys = k_end < keys.k_begin + Config::tile_kv;
  for (; tiles.has(0); ++step, tiles.advance()) {
    const bool is_last = !tiles.has(1);
    const int head = tiles.head(0), query = tiles.query(0);
    if constexpr (touches_queries<typename Config::Mask>) {
      if (tiles.is_partial()) {  // prefetches for consumers, which would wait for memory in each step
        const typename Config::Mask mask(sequences.context(keys.batch, head));
        mask.touch(query, minimum(query + Config::tile_q, sequences.q(keys.batch).length));
      }
    }
    const int flags =
        // mutate: TheEndOfKeysIsNotMasked
        (tiles.is_partial() || has_end_of_keys ? query_info_partial : 0) | (is_last ? query_info_end : 0);
    const auto box = query_box<Config>(sequences, keys.batch, head, query);
    const long long statistic =
        first_query_tile<Config>(params, sequences, keys.batch, head) * Config::tile_q + query;
    pipelines.q.producer_acquire(step);  // mutate: QueriesAreOverwritten
    if (elected) {
      store_query_info(pipelines.info(step), {head, query, flags});
      const int tile = head * query_tiles<Config>(params) + query / Config::tile_q;
      store_shared(pipelines.dq_info(step), is_last ? last_dq_tile | tile : tile);
      loads.load_queries(step, box, statistic);
    }
    // mutate: DoIsLoadedOverWhatIsRead
    if constexpr (Traits::releases_do) pipelines.d_o.producer_acquire(step);
    if (elected) loads.load_do(step, box, statistic);
  }
  return step;
}

/// All tiles of keys of the block, in the scheduler's order. `Loads` start the copies.
template <class Loads, class Pipelines, class Maps, class Scheduler>
JIT_DEVICE void load_key_tiles(const AttentionParams& params, const GradientParams& gradients,
                               const Maps& maps, Scheduler scheduler, unsigned smem) {
  using Config = typename Pipelines::Traits::Config;
  unsigned round = 0, step = 0;
  KeyWaits<Config> waits(params);
#pragma unroll 1
  for (int tile = scheduler.first(); tile != no_key_tile; tile = scheduler.next()) {
    if constexpr (has_arrivals<Config>) {
      if (tile == empty_key_tile) continue;
    }
    const KeyTile<Config> keys = key_tile<Config>(params, tile);
    if (!keys.is_there()) continue;
    const bool is_there = waits.wait(keys.k_begin);
    step = load_steps<Loads, Pipelines>(params, gradients, maps, keys, tile, round, step, is_there, smem);
    ++round;
  }
  waits.wait_for_all();  // mutate: GradientsEndBeforeAllHaveBegun
  const Pipelines pipelines(smem);
  commit_no_queries(pipelines, round, no_key_tile);
}

}  // namespace jit
