// The warp of a one-pass kernel that loads: keys and values of a tile, and the tiles of queries that see them.
#pragma once

#include "backward/boxes.cuh"
#include "backward/key_tiles.cuh"
#include "backward/query_visits.cuh"
#include "backward/turns.cuh"
#include "backward_wgmma/pair.cuh"
#include "backward_wgmma/pipelines.cuh"
#include "ptx/bulk_copy.cuh"
#include "ptx/griddepcontrol.cuh"

namespace jit::backward_wgmma {

/// The copies of a tile of keys, the block's `round`-th, and of the tiles of queries that see it. `Maps` are TensorMaps or
/// SequenceMaps. All are started by one thread.
template <class Config, class Maps>
class TileLoads {
  using Traits = KernelTraits<Config>;
  using KTile = typename Traits::KTile;
  using VTile = typename Traits::VTile;
  using QTile = typename Traits::QTile;
  using DoTile = typename Traits::DoTile;
  static constexpr int statistic_bytes = Pipelines<Config>::statistic_bytes;

 public:
  JIT_DEVICE TileLoads(const AttentionParams& params, const GradientParams& gradients, const Maps& maps,
                       const SequencesOf<Config>& sequences, const KeyTile<Config>& keys,
                       const Pipelines<Config>& pipelines)
      : params_(params),
        gradients_(gradients),
        maps_(maps),
        sequences_(sequences),
        keys_(keys),
        pipelines_(pipelines) {}

  /// The block's values, with which keys are there, too.
  JIT_DEVICE void load_values(unsigned round) const {
    const unsigned full = pipelines_.keys.full_at(round);
    mbarrier_arrive_expect_tx(full, VTile::bytes);
    load_tile<VTile>(pipelines_.v(round),
                     map_of(maps_, &TensorMaps::v, &SequenceMaps::bounded_v, Traits::own_keys), full,
                     box_of_block(pair_rank<Config>()));
  }
  /// The block's keys, and what it multiplies of the other one's.
  JIT_DEVICE void load_keys(unsigned round) const {
    const int rank = pair_rank<Config>();
    const PanelRange of_peer = own_panels<Config>(rank);
    const auto& map = map_of(maps_, &TensorMaps::k, &SequenceMaps::bounded_k, Traits::own_keys);
    const unsigned full = pipelines_.keys.full_at(round);
    mbarrier_arrive_expect_tx(full, KTile::bytes + (Config::pair ? of_peer.count * KTile::panel_bytes : 0));
    load_tile<KTile>(pipelines_.k(round), map, full, box_of_block(rank));
    if constexpr (Config::pair) {
      for (int i = 0; i < of_peer.count; ++i)
        load_panel(pipelines_.smem + Traits::layout.peer_k + i * KTile::panel_bytes, map, full,
                   (of_peer.begin + i) * KTile::columns,
                   box_of_block(rank ^ 1));  // mutate: TheOtherTileIsMultiplied
    }
  }

  /// Q and LSE, which scores need; `place` is that of the tile's first query among the statistics of all.
  template <class Box>
  JIT_DEVICE void load_queries(unsigned step, const Box& box, long long place) const {
    const unsigned full = pipelines_.q.full_at(step);
    mbarrier_arrive_expect_tx(
        full, QTile::bytes + statistic_bytes + (Config::deterministic ? turn_count_bytes : 0));
    if constexpr (Config::deterministic) {
      load_turns<Config>(params_, maps_.schedule.turns, place / Config::tile_q,
                         keys_.k_begin / Config::tile_kv, pipelines_.turn_counts(step), full);
    }
    load_tile<QTile>(pipelines_.q.tile(step),
                     map_of(maps_, &TensorMaps::q, &SequenceMaps::bounded_q, Config::tile_q), full, box);
    cp_async_bulk_load(pipelines_.lse_log2(step), gradients_.lse_log2 + place, statistic_bytes, full);
  }
  /// dO and delta.
  template <class Box>
  JIT_DEVICE void load_do(unsigned step, const Box& box, long long place) const {
    const unsigned full = pipelines_.d_o.full_at(step);
    mbarrier_arrive_expect_tx(full, DoTile::bytes + statistic_bytes);
    load_tile<DoTile>(pipelines_.d_o.tile(step),
                      map_of(maps_, &TensorMaps::d_o, &SequenceMaps::bounded_do, Config::tile_q), full, box);
    cp_async_bulk_load(pipelines_.delta(step), gradients_.delta + place, statistic_bytes, full);
  }

 private:
  // The place of the keys that block `block` of a pair owns.
  JIT_DEVICE auto box_of_block(int block) const {
    return key_box<Config>(sequences_, keys_.batch, keys_.kv_head, keys_of_block(keys_, block).k_begin,
                           Traits::own_keys);
  }

  const AttentionParams& params_;
  const GradientParams& gradients_;
  const Maps& maps_;
  const SequencesOf<Config>& sequences_;
  const KeyTile<Config>& keys_;
  const Pipelines<Config>& pipelines_;
};

/// The steps of a tile of keys, which is there, as a function of for_each_key_tile. `round` counts tiles.
template <class Config, class Maps>
JIT_DEVICE unsigned load_steps(const AttentionParams& params, const GradientParams& gradients,
                               const Maps& maps, const KeyTile<Config>& keys, int key_tile, unsigned round,
                               unsigned step, unsigned smem) {
  using Traits = KernelTraits<Config>;
  const Pipelines<Config> pipelines(smem);
  const SequencesOf<Config> sequences = keys.sequences(params);
  const TileLoads<Config, Maps> loads(params, gradients, maps, sequences, keys, pipelines);
  const bool elected = lane_id() == 0;
  const int k_end = minimum(keys.k_begin + Config::tile_kv, sequences.kv(keys.batch).length);
  auto tiles = visited_queries<Config>(params, gradients, maps.schedule, sequences, keys, k_end);
  if (tiles.has(0)) {
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
      loads.load_queries(step, box, statistic);
    }
    // mutate: DoIsLoadedOverWhatIsRead
    if constexpr (Traits::has_roles) pipelines.d_o.producer_acquire(step);
    if (elected) loads.load_do(step, box, statistic);
  }
  return step;
}

template <class Config, class Maps>
JIT_DEVICE void load_key_tiles(const AttentionParams& params, const GradientParams& gradients,
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
