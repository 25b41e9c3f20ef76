// Copies of tiles by TMA, a box for each panel, and where pages are a box for each piece of a page.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "forward_wgmma/traits.cuh"
#include "forward_wgmma/work.cuh"
#include "problem/masks.cuh"
#include "problem/sequences.cuh"
#include "problem/variable_sequences.cuh"
#include "ptx/bulk_tensor.cuh"
#include "ptx/mbarrier.cuh"
#include "tiles/bounded_box.cuh"
#include "tiles/bounded_copy.cuh"

namespace jit::forward_wgmma {

/// The maps of q, k, v and o.
template <class Config>
__device__ __forceinline__ decltype(auto) map_of(const TensorMaps& maps, const TensorMap& whole,
                                                 TensorMap SequenceMaps::*part, int rows) {
  if constexpr (KernelTraits<Config>::has_lengths) {
    return BoundedMap{whole, static_cast<const SequenceMaps&>(maps).*part, rows};
  } else {
    return whole;
  }
}
template <class Config>
__device__ __forceinline__ decltype(auto) q_map(const TensorMaps& maps) {
  return map_of<Config>(maps, maps.q, &SequenceMaps::bounded_q, rows_per_warpgroup);
}
template <class Config>
__device__ __forceinline__ decltype(auto) k_map(const TensorMaps& maps) {
  return map_of<Config>(maps, maps.k, &SequenceMaps::bounded_k, KernelTraits<Config>::box_rows);
}
template <class Config>
__device__ __forceinline__ decltype(auto) v_map(const TensorMaps& maps) {
  return map_of<Config>(maps, maps.v, &SequenceMaps::bounded_v, KernelTraits<Config>::box_rows);
}
template <class Config>
__device__ __forceinline__ decltype(auto) o_map(const TensorMaps& maps) {
  return map_of<Config>(maps, maps.o, &SequenceMaps::bounded_o, rows_per_warpgroup);
}

/// Starts the copy of a panel of a tile whose first row is `first`. By one thread.
__device__ __forceinline__ void load_panel(unsigned panel, const TensorMap& map, unsigned full, int column,
                                           const RowPlace& first) {
  cp_async_bulk_tensor_load(panel, map, full, column, first.seq, first.head, first.batch);
}

/// The same to the tensor.
__device__ __forceinline__ void store_panel(unsigned panel, const TensorMap& map, int column,
                                            const RowPlace& first) {
  cp_async_bulk_tensor_store(map, panel, column, first.seq, first.head, first.batch);
}

/// Starts the copies of all panels of a tile. By one thread.
template <class Tile, class Map, class Place>
__device__ __forceinline__ void load_tile(unsigned tile, const Map& map, unsigned full, const Place& place) {
  mbarrier_arrive_expect_tx(full, Tile::bytes);  // mutate: AnnouncesTooFewBytes
#pragma unroll
  for (int panel = 0; panel < Tile::panels; ++panel)
    load_panel(tile + panel * Tile::panel_bytes, map, full, panel * Tile::columns, place);
}
template <class Tile, class Map, class Place>
__device__ __forceinline__ void store_tile(unsigned tile, const Map& map, const Place& place) {
#pragma unroll
  for (int panel = 0; panel < Tile::panels; ++panel)
    store_panel(tile + panel * Tile::panel_bytes, map, panel * Tile::columns, place);
}

/// Looks at the page of a box of `rows` keys from `key` on, where arrays are checked and some query of the tile may see one.
template <class Config, int rows>
__device__ __forceinline__ void expect_page(const AttentionParams& params, const SequenceTile& work, int key,
                                            int page) {
  if constexpr (Config::checked) {
    const typename Config::Mask mask(context_of<Config>(params, work));
    const int q_end = minimum(work.q_begin + Config::tile_q, work.seqlen_q);
    const KeyRange keys = lane_key_range(mask, work.seqlen_kv, work.q_begin, q_end);
    if (key + rows > keys.begin && key < minimum(keys.end, work.seqlen_kv))
      VariableSequences<Config>(params).expect_page(work.batch, work.first_key + key, page);
  }
}

/// Where the lane's box lies, of `boxes` of `rows` keys each, of a tile that begins with key `k_begin` of its sequence. What a
/// page table says may be any number: where there is no such page the box is not there.
template <class Config, int rows, int boxes>
__device__ __forceinline__ BoundedBox lane_box(const AttentionParams& params, const SequenceTile& work,
                                               const Sequence& keys, int k_begin) {
  const int key = k_begin + lane_id() * rows, row = keys.begin + key;  // mutate: KeyOfLane
  const int kv_head = work.head / Config::gqa_ratio;
  if constexpr (KernelTraits<Config>::has_pages) {
    const bool has_keys = lane_id() < boxes && key < keys.length;
    const int page = has_keys ? VariableSequences<Config>(params).page(work.batch, row) : -1;
    if (has_keys) expect_page<Config, rows>(params, work, key, page);
    const bool is_page = page >= 0 && page < params.sequences.pages;
    // mutate: BoxesOfKeysDoNotEnd
    return bounded_box(rows, row % Config::page_size, is_page ? keys.length - key : 0, kv_head,
                       is_page ? page : 0);
  } else {
    const bool is_varlen = Config::sequences_kv == SequenceKind::varlen;
    return bounded_box(rows, row, keys.length - key, kv_head, is_varlen ? 0 : work.batch);
  }
}

/// Where a tile of keys or values lies that begins with key `k_begin` of its sequence. In bounded boxes it is where the
/// lane's box does.
template <class Config>
__device__ __forceinline__ RowPlace key_box(const AttentionParams& params, const WorkTile& work,
                                            const Sequence& /*keys*/, int k_begin) {
  const Sequences<Config> sequences(params);
  return sequences.key_place(work.batch, sequences.kv_head(work.head), k_begin);
}
template <class Config>
__device__ __forceinline__ BoundedBox key_box(const AttentionParams& params, const SequenceTile& work,
                                              const Sequence& keys, int k_begin) {
  using Traits = KernelTraits<Config>;
  return lane_box<Config, Traits::box_rows, Traits::boxes>(params, work, keys, k_begin);
}

/// Starts the copies of a tile of keys or values, whose bytes count at the barrier `full`. By a whole warp.
template <class Config, class Tile>
__device__ __forceinline__ void load_key_tile(unsigned tile, const TensorMap& map, unsigned full,
                                              const RowPlace& first) {
  if (lane_id() == 0) load_tile<Tile>(tile, map, full, first);
}
template <class Config, class Tile>
__device__ __forceinline__ void load_key_tile(unsigned tile, const BoundedMap& map, unsigned full,
                                              const BoundedBox& box) {
  using Traits = KernelTraits<Config>;
  if constexpr (Traits::boxes == 1) {
    if (lane_id() == 0) load_tile<Tile>(tile, map, full, box);
    return;
  }
  // By different lanes: a warp takes about 110 cycles to start a copy, and those of one lane took longer.
  if (lane_id() == 0) mbarrier_arrive_expect_tx(full, Tile::bytes);
  __syncwarp();
#pragma unroll
  for (int first = 0; first < Traits::boxes * Tile::panels; first += warp_size) {
    const int index = (first + lane_id()) / Tile::panels, panel = (first + lane_id()) % Tile::panels;
    const BoundedBox own{.first = __shfl_sync(full_warp, box.first, index),
                         .missing = __shfl_sync(full_warp, box.missing, index),
                         .head = box.head,
                         .batch = __shfl_sync(full_warp, box.batch, index)};
    if (index >= Traits::boxes) break;
    // mutate: BoxesBesideTheirPlaces
    load_panel(tile + panel * Tile::panel_bytes + index * Traits::box_rows * Tile::row_bytes, map, full,
               panel * Tile::columns, own);
  }
}

}  // namespace jit::forward_wgmma
