// The warp of a one-pass kernel that loads: keys and values of a tile, and the tiles of queries that see them.
#pragma once

#include "backward/boxes.cuh"
#include "backward/query_visits.cuh"
#include "backward/turns.cuh"
#include "backward_wgmma/key_tiles.cuh"
#include "backward_wgmma/pair.cuh"
#include "backward_wgmma/pipelines.cuh"
#include "ptx/bulk_copy.cuh"
#include "ptx/bulk_tensor.cuh"
#include "ptx/griddepcontrol.cuh"

namespace jit::backward_wgmma {

/// The place of the keys of a tile that block `block` of a pair owns.
template <class Config>
__device__ __forceinline__ auto block_box(const SequencesOf<Config>& sequences, const KeyTile<Config>& keys,
                                          int block) {
  return key_box<Config>(sequences, keys.batch, keys.kv_head, keys_of_block(keys, block).k_begin,
                         KernelTraits<Config>::own_keys);
}

/// Starts the copies of the block's values, with which keys are there, too. By one thread.
template <class Config, class Maps>
__device__ __forceinline__ void load_values(const Maps& maps, const SequencesOf<Config>& sequences,
                                            const KeyTile<Config>& keys, const Pipelines<Config>& pipelines,
                                            unsigned round) {
  using Traits = KernelTraits<Config>;
  using VTile = typename Traits::VTile;
  const unsigned full = pipelines.keys.full_at(round);
  mbarrier_arrive_expect_tx(full, VTile::bytes);
  load_tile<VTile>(pipelines.v(round),
                   map_of(maps, &TensorMaps::v, &SequenceMaps::bounded_v, Traits::own_keys), full,
                   block_box<Config>(sequences, keys, pair_rank<Config>()));
}

/// The same of keys, and of what the block multiplies of the other one's.
template <class Config, class Maps>
__device__ __forceinline__ void load_keys(const Maps& maps, const SequencesOf<Config>& sequences,
                                          const KeyTile<Config>& keys, const Pipelines<Config>& pipelines,
                                          unsigned round) {
  using Traits = KernelTraits<Config>;
  using KTile = typename Traits::KTile;
  const int rank = pair_rank<Config>();
  const PanelRange of_peer = own_panels<Config>(rank);
  const auto& map = map_of(maps, &TensorMaps::k, &SequenceMaps::bounded_k, Traits::own_keys);
  const auto box_of = [&](int block) { return block_box<Config>(sequences, keys, block); };
  const unsigned full = pipelines.keys.full_at(round);
  mbarrier_arrive_expect_tx(full, KTile::bytes + (Config::pair ? of_peer.count * KTile::panel_bytes : 0));
  load_tile<KTile>(pipelines.k(round), map, full, box_of(rank));
  if constexpr (Config::pair) {
    for (int i = 0; i < of_peer.count; ++i)
      load_panel(pipelines.smem + Traits::layout.peer_k + i * KTile::panel_bytes, map, full,
                 (of_peer.begin + i) * KTile::columns, box_of(rank ^ 1));  // mutate: TheOtherTileIsMultiplied
  }
}

/// The steps of a tile of keys, which is there, as a function of for_each_key_tile. `round` counts tiles.
template <class Config, class Maps>
__device__ __forceinline__ unsigned load_steps(const AttentionParams& params, const GradientParams& gradients,
                                               const Maps& maps, const KeyTile<Config>& keys, int key_tile,
                                               unsigned round, unsigned step, unsigned smem) {
  using Traits = KernelTraits<Config>;
  constexpr int statistic_bytes = Pipelines<Config>::statistic_bytes;
  const Pipelines<Config> pipelines(smem);
  const SequencesOf<Config> sequences = keys.sequences(params);
  const bool elected = lane_id() == 0;
  const int k_end = minimum(keys.k_begin + Config::tile_kv, sequences.kv(keys.batch).length);
  auto tiles = visited_queries<Config>(params, gradients, maps.schedule, sequences, keys, k_end);
  if (tiles.has(0)) {
    if constexpr (Traits::has_early_values) {
      pipelines.values.producer_acquire(round);  // mutate: ValuesAreOverwritten
      if (elected) load_values<Config>(maps, sequences, keys, pipelines, round);
    }
    pipelines.keys.producer_acquire(round);  // mutate: KeysAreOverwritten
    if (elected) {
      store_key_info(pipelines, round, key_tile, true);
      load_keys<Config>(maps, sequences, keys, pipelines, round);
      if constexpr (!Traits::has_early_values) load_values<Config>(maps, sequences, keys, pipelines, round);
    }
  } else {
    tell_no_queries(pipelines, round, key_tile);
  }
  // mutate: ProducerDoesNotWait
  griddepcontrol_wait();  // for what prepare.cuh leaves; keys are not among it
  // Keys behind the last one are zeros, whose probabilities may be infinite.
  const bool has_end_of_keys = k_end < keys.k_begin + Config::tile_kv;
  for (; tiles.has(0); ++step, tiles.advance()) {
    const bool is_last = !tiles.has(1);
    const int head = tiles.head(0), query = tiles.query(0);
    if constexpr (touches_queries<typename Config::Mask>) {
      if (tiles.is_partial()) {  // consumers would wait for memory in each step
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
      const unsigned q_full = pipelines.q.full_at(step);
      mbarrier_arrive_expect_tx(
          q_full, Traits::QTile::bytes + statistic_bytes + (Config::deterministic ? turn_count_bytes : 0));
      if constexpr (Config::deterministic) {
        load_turns<Config>(params, maps.schedule.turns, statistic / Config::tile_q,
                           keys.k_begin / Config::tile_kv, pipelines.turn_counts(step), q_full);
      }
      load_tile<typename Traits::QTile>(
          pipelines.q.tile(step), map_of(maps, &TensorMaps::q, &SequenceMaps::bounded_q, Config::tile_q),
          q_full, box);
      cp_async_bulk_load(pipelines.lse_log2(step), gradients.lse_log2 + statistic, statistic_bytes, q_full);
    }
    // mutate: DoIsLoadedOverWhatIsRead
    if constexpr (Traits::has_roles) pipelines.d_o.producer_acquire(step);
    if (!elected) continue;
    const unsigned do_full = pipelines.d_o.full_at(step);
    mbarrier_arrive_expect_tx(do_full, Traits::DoTile::bytes + statistic_bytes);
    load_tile<typename Traits::DoTile>(
        pipelines.d_o.tile(step), map_of(maps, &TensorMaps::d_o, &SequenceMaps::bounded_do, Config::tile_q),
        do_full, box);
    cp_async_bulk_load(pipelines.delta(step), gradients.delta + statistic, statistic_bytes, do_full);
  }
  return step;
}

template <class Config, class Maps>
__device__ __forceinline__ void load_key_tiles(const AttentionParams& params, const GradientParams& gradients,
                                               const Maps& maps, unsigned smem) {
  BlockScheduler<Config> scheduler(params, maps.schedule, smem);
  unsigned round = 0, step = 0;
#pragma unroll 1
  for (int tile = scheduler.first(); tile != no_key_tile; tile = scheduler.next()) {
    const KeyTile<Config> keys = key_tile<Config>(params, tile);
    if (!keys.is_there()) continue;
    step = load_steps<Config>(params, gradients, maps, keys, tile, round, step, smem);
    ++round;
  }
  const Pipelines<Config> pipelines(smem);
  tell_no_queries(pipelines, round, no_key_tile);
}

}  // namespace jit::backward_wgmma
