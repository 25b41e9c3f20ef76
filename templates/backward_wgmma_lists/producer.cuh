// The warp of a kernel of lists that loads: a block of keys and, tile by tile, the queries whose lists name it. A lane has one or
// two slots of a tile, and rows of it: LSE, delta and the position of each it writes itself, and heads of a query that share the
// block come in a box for each panel.
//
//     places ─ rows of q, their numbers │ wait for the stage │ numbers, positions │ boxes of Q, then of dO
//
// Slots behind the list are no query's: they have boxes behind the last row, which are zeros, and an LSE of +inf, so that their
// probabilities are 0.
#pragma once

#include "backward/listed_queries.cuh"
#include "backward/query_infos.cuh"
#include "backward/tile_loads.cuh"
#include "backward_wgmma/pipelines.cuh"
#include "backward_wgmma_lists/items.cuh"
#include "backward_wgmma_lists/sums.cuh"
#include "ptx/griddepcontrol.cuh"

namespace jit::backward_wgmma {

template <class Config>
class ListedLoads {
  using Traits = KernelTraits<Config>;
  using Mask = typename Config::Mask;
  static constexpr int ratio = Config::gqa_ratio;
  static constexpr int tile_slots = listed_tile_slots(ratio);
  static constexpr int own_slots = (tile_slots + warp_size - 1) / warp_size;
  static constexpr int own_rows = rows_per_warpgroup / warp_size;
  static_assert(tile_slots * ratio == rows_per_warpgroup, "tiles are whole");

 public:
  JIT_DEVICE ListedLoads(const AttentionParams& params, const ListedMaps& maps, unsigned smem)
      : params_(params), maps_(maps), pipelines_(smem) {}

  /// The tiles of an item, as a function of steps.
  JIT_DEVICE unsigned run(const ListedItem& item, const KeyTile<Config>& keys, unsigned step) const {
    const bool has_end_of_keys = keys.k_begin + Config::tile_kv > keys.kv.length;
#pragma unroll 1
    for (int first = 0; first < item.slots; first += tile_slots, ++step) {
      Slots slots;
      find(slots, item, keys, first);
      bool is_partial = has_end_of_keys;  // mutate: TheEndOfListedKeysIsNotMasked
#pragma unroll
      for (int i = 0; i < own_slots; ++i)
        is_partial = is_partial || (slots.position[i] != no_query && !sees_all(keys, slots.position[i]));
      is_partial = __any_sync(full_warp, is_partial);
      const int flags =
          (is_partial ? query_info_partial : 0) | (first + tile_slots >= item.slots ? query_info_end : 0);
      const int tile = item.kv_head * maps_.work.head_tiles + item.first_tile + first / tile_slots;
      load(slots, item, step, flags, tile);
    }
    return step;
  }

 private:
  // The lane's slots, those at places lane_id() + i · 32 of a tile: rows of q, and their positions.
  struct Slots {
    int row[own_slots];
    int position[own_slots];
  };

  JIT_DEVICE void find(Slots& slots, const ListedItem& item, const KeyTile<Config>& keys, int first) const {
    const ListedWork& work = maps_.work;
    const long long room = static_cast<long long>(item.kv_head) * work.queries * work.entries;
    const int begin = work.starts[static_cast<long long>(item.kv_head) * (work.block_limit + 1) + item.block];
#pragma unroll
    for (int i = 0; i < own_slots; ++i) {
      const int own = first + lane_id() + i * warp_size;
      slots.row[i] = no_row;
      slots.position[i] = no_query;
      if (lane_id() + i * warp_size >= tile_slots || own >= item.slots) continue;
      const int place = work.places[room + begin + item.first_slot + own];
      work.slots[room + place] = item.first_tile * tile_slots + own;  // mutate: SlotsOfTheFirstTile
      slots.row[i] = work.first_query + place / work.entries;
      slots.position[i] = slots.row[i] - keys.q.begin;
    }
  }

  // Whether a query sees all keys of the block. Masks that leave it no single range are asked about each score.
  JIT_DEVICE bool sees_all(const KeyTile<Config>& keys, int position) const {
    if constexpr (is_same<Mask, NoMask>) return true;
    if constexpr (has_row_range<Mask> && !depends_on_head<Mask>) {
      const Mask mask(keys.sequences(params_).context(keys.batch, keys.kv_head * ratio));
      const KeyRange range = mask.row_range(position);
      return range.begin <= keys.k_begin && range.end >= keys.k_begin + Config::tile_kv;
    }
    return false;
  }

  JIT_DEVICE void load(const Slots& slots, const ListedItem& item, unsigned step, int flags, int tile) const {
    const int first_head = item.kv_head * ratio, lane = lane_id();
    ListedRowNumbers numbers[own_rows];
    int positions[own_rows];
#pragma unroll
    for (int j = 0; j < own_rows; ++j) {
      const int row = lane + j * warp_size, i = own_slots > 1 ? j : 0;
      const int own = __shfl_sync(full_warp, slots.row[i], row / ratio);
      positions[j] = __shfl_sync(full_warp, slots.position[i], row / ratio);
      numbers[j] = {-negative_infinity(), 0};
      if (own != no_row)
        numbers[j] =
            maps_.work.rows[static_cast<long long>(own) * params_.heads_q + first_head + row % ratio];
    }
    pipelines_.q.producer_acquire(step);  // mutate: ListedQueriesAreOverwritten
#pragma unroll
    for (int j = 0; j < own_rows; ++j) {
      const int row = lane + j * warp_size;
      store_shared(pipelines_.lse_log2(step) + Traits::statistic_place(row) * 4,
                   __float_as_int(numbers[j].lse_log2));
      store_shared(pipelines_.query_rows(step) + row * 4, positions[j]);
    }
    if (lane == 0) {
      store_query_info(pipelines_.info(step), {first_head, 0, flags});
      store_shared(pipelines_.dq_info(step), (flags & query_info_end) != 0 ? last_dq_tile | tile : tile);
    }
    __syncwarp();  // mutate: NumbersOfOtherLanesAreSaidToBeThere
    load_boxes<typename Traits::QTile>(slots, pipelines_.q.tile(step), maps_.q, pipelines_.q.full_at(step),
                                       first_head);
    // mutate: ListedDoIsOverwritten
    if constexpr (Traits::releases_do) pipelines_.d_o.producer_acquire(step);
#pragma unroll
    for (int j = 0; j < own_rows; ++j)
      store_shared(pipelines_.delta(step) + Traits::statistic_place(lane + j * warp_size) * 4,
                   __float_as_int(numbers[j].minus_delta));
    __syncwarp();  // mutate: DeltasOfOtherLanesAreSaidToBeThere
    load_boxes<typename Traits::DoTile>(slots, pipelines_.d_o.tile(step), maps_.d_o,
                                        pipelines_.d_o.full_at(step), first_head);
  }

  // Boxes of a panel of a slot's rows, which follow one another.
  template <class Tile>
  static JIT_DEVICE void load_boxes(const Slots& slots, unsigned to, const TensorMap& map, unsigned full,
                                    int first_head) {
    // Bytes that come before count all the same: the phase waits for the arrival.
    if (lane_id() == 0) mbarrier_arrive_expect_tx(full, Tile::bytes);
#pragma unroll
    for (int i = 0; i < own_slots; ++i) {
      if (lane_id() >= tile_slots) continue;
#pragma unroll
      for (int panel = 0; panel < Tile::panels; ++panel)
        cp_async_bulk_tensor_load(
            to + panel * Tile::panel_bytes + (lane_id() + i * warp_size) * ratio * Tile::row_bytes, map, full,
            panel * Tile::columns, first_head, slots.row[i], 0);
    }
  }

  const AttentionParams& params_;
  const ListedMaps& maps_;
  const Pipelines<Config> pipelines_;
};

/// All items of the block.
template <class Config>
JIT_DEVICE void load_listed_tiles(const AttentionParams& params, const GradientParams& gradients,
                                  const ListedMaps& maps, unsigned smem) {
  const Pipelines<Config> pipelines(smem);
  const ListedItems<Config> items(params, maps);
  const ListedWork& work = maps.work;
  unsigned round = 0, step = 0;
  griddepcontrol_wait();  // mutate: LoadsListsThatAreNotThere
#pragma unroll 1
  for (int number = items.next(); number >= 0; number = items.next()) {
    const ListedItem item = items.item(number);
    if (item.block < 0) continue;
    const int key_tile = item.kv_head * static_cast<int>(varlen_tiles(params.batch, params.sequences.total_k,
                                                                      Config::tile_kv)) +
                         item.block;
    const KeyTile<Config> keys = jit::key_tile<Config>(params, key_tile);
    if (!keys.is_there()) continue;
    const bool has_queries = item.slots > 0, leaves = work.is_last && item.is_last;
    if (!has_queries && !work.is_first && !leaves) continue;
    const bool adds = !work.is_first || item.number > 0;  // mutate: SumsOfEarlierItemsLeftOut
    const int share =
        (adds ? share_adds : 0) | (leaves ? share_leaves : 0) | item.number << share_number_shift;
    pipelines.keys.producer_acquire(round);  // mutate: ListedKeysAreOverwritten
    if (lane_id() == 0) {
      store_shared(smem + KernelTraits<Config>::layout.shares + pipelines.keys.stage(round) * 4, share);
      if (has_queries) {
        const SequencesOf<Config> sequences = keys.sequences(params);
        const TileLoads<Pipelines<Config>, ListedMaps> loads(params, gradients, maps, sequences, keys,
                                                             pipelines);
        store_key_info(pipelines, round, key_tile, true);
        loads.load_keys(round);
        loads.load_values(round);
      } else {
        store_key_info(pipelines, round, key_tile, false);
        for (int i = 0; i < key_arrivals; ++i) mbarrier_arrive(pipelines.keys.full_at(round));
      }
    }
    step = ListedLoads<Config>(params, maps, smem).run(item, keys, step);
    ++round;
  }
  commit_no_queries(pipelines, round, no_key_tile);
}

}  // namespace jit::backward_wgmma
