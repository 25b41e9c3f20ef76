// The warps of a one-pass kernel that only start copies: one loads keys and values and the tiles of queries that
// see them, and one for each consumer that leaves dQ in shared memory adds that to dQ of other blocks.
#pragma once

#include "backward_wgmma/dq_sums.cuh"
#include "backward_wgmma/key_tiles.cuh"
#include "backward_wgmma/pair.cuh"
#include "backward_wgmma/pipelines.cuh"
#include "backward_wgmma/tensor_maps.cuh"
#include "backward_wgmma/turn_tiles.cuh"
#include "backward_wgmma/turns.cuh"
#include "problem/query_tiles.cuh"
#include "ptx/bulk_copy.cuh"
#include "ptx/bulk_tensor.cuh"
#include "ptx/griddepcontrol.cuh"
#include "tiles/bounded_box.cuh"
#include "tiles/bounded_copy.cuh"

namespace jit::backward_wgmma {

/// Starts the copy of a panel of a tile whose first row is `first`. By one thread.
__device__ __forceinline__ void load_panel(unsigned panel, const TensorMap& map, unsigned full, int column,
                                           const RowPlace& first) {
  cp_async_bulk_tensor_load(panel, map, full, column, first.seq, first.head, first.batch);
}

/// The same of all panels of a tile, whose rows begin somewhere, or lie in a box that ends with their sequence.
template <class Tile, class Map, class Place>
__device__ __forceinline__ void load_tile(unsigned tile, const Map& map, unsigned full, const Place& place) {
#pragma unroll
  for (int panel = 0; panel < Tile::panels; ++panel)
    load_panel(tile + panel * Tile::panel_bytes, map, full, panel * Tile::columns, place);
}

/// Where the maps are of what is loaded in tiles of `rows`.
__device__ __forceinline__ const TensorMap& map_of(const TensorMaps& maps, TensorMap TensorMaps::*whole,
                                                   TensorMap SequenceMaps::*, int) {
  return maps.*whole;
}
__device__ __forceinline__ BoundedMap map_of(const SequenceMaps& maps, TensorMap TensorMaps::*whole,
                                             TensorMap SequenceMaps::*part, int rows) {
  return {maps.*whole, maps.*part, rows};
}

/// The place of the tile of queries from `query` on, and of so many rows of keys from `key` on.
template <class Config>
__device__ __forceinline__ auto query_box(const SequencesOf<Config>& sequences, int batch, int head,
                                          int query) {
  if constexpr (has_entry_lengths<Config>) {
    const Sequence own = sequences.q(batch);
    // mutate: QueriesOfTheNextSequence
    return bounded_box(Config::tile_q, own.begin + query, own.length - query, head,
                       Config::sequences_q == SequenceKind::varlen ? 0 : batch);
  } else {
    return sequences.query_place(batch, head, query);
  }
}
template <class Config>
__device__ __forceinline__ auto key_box(const SequencesOf<Config>& sequences, int batch, int kv_head, int key,
                                        int rows) {
  if constexpr (has_entry_lengths<Config>) {
    const Sequence own = sequences.kv(batch);
    return bounded_box(rows, own.begin + key, own.length - key, kv_head,  // mutate: KeysOfTheNextSequence
                       Config::sequences_kv == SequenceKind::varlen ? 0 : batch);
  } else {
    return sequences.key_place(batch, kv_head, key);
  }
}

/// In which order a block visits the tiles of queries of a head. Where all keys see all queries, each begins at its own
/// diagonal: blocks that began together would add to the same rows of dQ all the time. Of drawn tiles of keys TurnTiles know.
template <class Config>
__device__ __forceinline__ auto query_order(const AttentionParams& params, const TensorMaps& maps,
                                            const KeyTile<Config>& keys) {
  if constexpr (schedule_of<Config> == Schedule::shared_heads) {
    return own_visits<Config>(params, maps.turns.visits, keys);
  } else if constexpr (keeps_every_score<typename Config::Mask> && !has_entry_lengths<Config>) {
    const int tiles = query_tiles<Config>(params), begin = keys.k_begin / Config::tile_q;
    return Visits{tiles, begin < tiles || tiles == 0 ? begin : begin % tiles, 1};
  } else {
    return AscendingTiles{};
  }
}

/// What prepare.cuh leaves of the words of tiles of queries. Requires: griddepcontrol_wait.
template <class Config>
class QueryRanges {
 public:
  static constexpr bool are_known = true;
  __device__ __forceinline__ QueryRanges(const AttentionParams& params, const GradientParams& gradients,
                                         const SequencesOf<Config>& sequences, int batch)
      : ranges_(reinterpret_cast<const int2*>(gradients.query_ranges) +
                first_query_tile<Config>(params, sequences, batch, 0)) {}
  __device__ __forceinline__ WordRange of(int tile) const {
    const int2 range = ranges_[tile];
    return {range.x, range.y};
  }

 private:
  const int2* ranges_;  // of the batch entry
};

/// The tiles of queries that see a tile of keys.
template <class Config, class Order>
__device__ __forceinline__ auto query_tiles_of(const AttentionParams& params, const GradientParams& gradients,
                                               const SequencesOf<Config>& sequences,
                                               const KeyTile<Config>& keys, int k_end, const Order& order) {
  const ScoreTile of_keys{0, 0, keys.k_begin, k_end};
  if constexpr (reads_query_ranges<typename Config::Mask>) {
    griddepcontrol_wait();  // mutate: ProducerOfRanges
    const QueryRanges<Config> ranges(params, gradients, sequences, keys.batch);
    if constexpr (schedule_of<Config> == Schedule::drawn) {
      return TurnTiles<Config, QueryRanges<Config>>(sequences, keys.batch, keys.kv_head, of_keys, ranges);
    } else {
      return QueryTiles<Config, 1, Order, QueryRanges<Config>>(sequences, keys.batch, keys.kv_head, of_keys,
                                                               order, ranges);
    }
  } else if constexpr (schedule_of<Config> == Schedule::drawn) {
    return TurnTiles<Config>(sequences, keys.batch, keys.kv_head, of_keys);
  } else {
    return QueryTiles<Config, 1, Order>(sequences, keys.batch, keys.kv_head, of_keys, order);
  }
}

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
  auto tiles = query_tiles_of<Config>(params, gradients, sequences, keys, k_end,
                                      query_order<Config>(params, maps, keys));
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
        load_turns<Config>(params, maps.turns, statistic / Config::tile_q, keys.k_begin / Config::tile_kv,
                           pipelines.turn_counts(step), q_full);
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
  BlockScheduler<Config> scheduler(params, maps, smem);
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

/// Adds what a consumer leaves of dQ, its parts of the tile of each step, to the sums of all blocks. By a warp.
template <class Config>
class DqAdder {
  using Traits = KernelTraits<Config>;
  static constexpr int part_bytes = Pipelines<Config>::dq_part_bytes;

 public:
  __device__ __forceinline__ DqAdder(const AttentionParams& params, const GradientParams& gradients,
                                     const TensorMaps& maps, const KeyTile<Config>& keys, int adder,
                                     unsigned smem)
      : params_(params),
        maps_(maps),
        keys_(keys),
        parts_(parts_of_adder<Config>(adder)),
        sums_(dq_sums<Config>(gradients,
                              first_query_tile<Config>(params, keys.sequences(params), keys.batch, 0)) +
              parts_.begin * Traits::dq_part_floats),
        pipelines_(smem),
        pipeline_(pipelines_.dq(adder)) {}

  /// The steps of a tile of keys, as a function of for_each_key_tile.
  __device__ __forceinline__ unsigned run(unsigned step) const {
    for (int info = 0; (info & last_dq_tile) == 0; ++step) {
      for (int i = 0; i < parts_.count; ++i) {
        pipeline_.consumer_wait(step * parts_.count + i);  // mutate: TheAdderDoesNotWait
        if (i == 0) info = load_shared_by_warp(pipelines_.dq_info(step));
        add(step, i, info & ~last_dq_tile);
      }
    }
    return step;
  }

 private:
  __device__ __forceinline__ void add(unsigned step, int i, int tile) const {
    const unsigned part = step * parts_.count + i;
    bool is_first = false;
    // mutate: AddersTakeNoTurns
    if constexpr (Config::deterministic) is_first = take_turn<Config>(pipelines_, step);
    if (lane_id() == 0) {
      float* const sums =
          // mutate: PanelsOfDqInAnotherOrder
          sums_ + static_cast<long long>(tile) * Traits::dq_tile_floats + i * Traits::dq_part_floats;
      if (is_first) {
        cp_async_bulk_store(sums, pipeline_.tile(part), part_bytes);
      } else {
        cp_reduce_async_bulk_add(sums, pipeline_.tile(part), part_bytes);
      }
      cp_async_bulk_commit_group();
      cp_async_bulk_wait_group_read<0>();  // mutate: TheAdderLetsGoTooEarly
    }
    pipeline_.consumer_release(part);
    if (Config::deterministic && lane_id() == 0) {
      cp_async_bulk_wait_group<0>();
      add_one_release(additions<Config>(params_, maps_, keys_, tile));
    }
  }

  const AttentionParams& params_;
  const TensorMaps& maps_;
  const KeyTile<Config> keys_;
  const PanelRange parts_;
  float* const sums_;
  const Pipelines<Config> pipelines_;
  const typename Pipelines<Config>::DqPipeline pipeline_;
};

/// What the warps beside the one that loads do: first those that add, then those that keep turns.
template <class Config>
__device__ __forceinline__ void help_with_dq(const AttentionParams& params, const GradientParams& gradients,
                                             const TensorMaps& maps, int warp, unsigned smem) {
  constexpr int adders = KernelTraits<Config>::adder_warps;
  constexpr int waiting_warp = 1 + adders;
  const Pipelines<Config> pipelines(smem);
  if constexpr (adders > 0) {
    if (warp < waiting_warp) {
      for_each_key_tile<Config>(
          params, pipelines, [&](const KeyTile<Config>& keys, bool has_queries, unsigned step) {
            pipelines.keys.consumer_release(keys.round);
            return has_queries ? DqAdder<Config>(params, gradients, maps, keys, warp - 1, smem).run(step)
                               : step;
          });
      return;
    }
  }
  if constexpr (Config::deterministic) {
    if (warp == waiting_warp) {
      const bool waits = have_turns<Config>(params, maps.turns);
      for_each_key_tile<Config>(
          params, pipelines, [&](const KeyTile<Config>& keys, bool has_queries, unsigned step) {
            pipelines.keys.consumer_release(keys.round);
            return has_queries ? wait_for_turns<Config>(params, maps, keys, waits, step, smem) : step;
          });
    } else if constexpr (!KernelTraits<Config>::adds_by_tma) {
      pass_turns<Config>(maps, warp - waiting_warp - 1, smem);
    }
  }
}

}  // namespace jit::backward_wgmma
