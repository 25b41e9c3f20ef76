// Copies of tiles by TMA, a box for each panel, and where pages are a box for each piece of a page.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "forward_wgmma/traits.cuh"
#include "forward_wgmma/work.cuh"
#include "problem/sequences.cuh"
#include "problem/variable_sequences.cuh"
#include "ptx/bulk_tensor.cuh"
#include "ptx/mbarrier.cuh"
#include "tiles/bounded_box.cuh"

namespace jit::forward_wgmma {

/// Starts the copy of a panel of a tile, whose first row is `first`, or which lies in a box. By one thread.
__device__ __forceinline__ void load_panel(unsigned panel, const TensorMap& map, unsigned full, int column,
                                           const RowPlace& first) {
  cp_async_bulk_tensor_load(panel, map, full, column, first.seq, first.head, first.batch);
}
__device__ __forceinline__ void load_panel(unsigned panel, const TensorMap& map, unsigned full, int column,
                                           const BoundedBox& box) {
  cp_async_bulk_tensor_load(panel, map, full, column, box.missing, box.head, box.row, box.batch);
}

/// The same to the tensor.
__device__ __forceinline__ void store_panel(unsigned panel, const TensorMap& map, int column,
                                            const RowPlace& first) {
  cp_async_bulk_tensor_store(map, panel, column, first.seq, first.head, first.batch);
}
__device__ __forceinline__ void store_panel(unsigned panel, const TensorMap& map, int column,
                                            const BoundedBox& box) {
  cp_async_bulk_tensor_store(map, panel, column, box.missing, box.head, box.row, box.batch);
}

/// Starts the copies of all panels of a tile. By one thread.
template <class Tile, class Place>
__device__ __forceinline__ void load_tile(unsigned tile, const TensorMap& map, unsigned full,
                                          const Place& place) {
  mbarrier_arrive_expect_tx(full, Tile::bytes);
#pragma unroll
  for (int panel = 0; panel < Tile::panels; ++panel)
    load_panel(tile + panel * Tile::panel_bytes, map, full, panel * Tile::columns, place);
}
template <class Tile, class Place>
__device__ __forceinline__ void store_tile(unsigned tile, const TensorMap& map, const Place& place) {
#pragma unroll
  for (int panel = 0; panel < Tile::panels; ++panel)
    store_panel(tile + panel * Tile::panel_bytes, map, panel * Tile::columns, place);
}

/// Where a tile of keys or values lies that begins with key `k_begin` of its sequence. In bounded boxes it is where the
/// lane's box does. What a page table says may be any number: TMA reads zeros where there is no such page.
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
  const int key = k_begin + lane_id() * Traits::box_rows, row = keys.begin + key;
  const int kv_head = work.head / Config::gqa_ratio;
  if constexpr (Traits::has_pages) {
    const bool has_keys = lane_id() < Traits::boxes && key < keys.length;
    const int page = has_keys ? VariableSequences<Config>(params).page(work.batch, row) : 0;
    return bounded_box(Traits::box_rows, row % Config::page_size, keys.length - key, kv_head, page);
  } else {
    const bool is_ragged = Config::sequences_kv == SequenceKind::ragged;
    return bounded_box(Traits::box_rows, row, keys.length - key, kv_head, is_ragged ? 0 : work.batch);
  }
}

/// Starts the copies of a tile of keys or values, whose bytes count at the barrier `full`. By a whole warp.
template <class Config, class Tile>
__device__ __forceinline__ void load_key_tile(unsigned tile, const TensorMap& map, unsigned full,
                                              const RowPlace& first) {
  if (lane_id() == 0) load_tile<Tile>(tile, map, full, first);
}
template <class Config, class Tile>
__device__ __forceinline__ void load_key_tile(unsigned tile, const TensorMap& map, unsigned full,
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
    const BoundedBox own{.missing = __shfl_sync(full_warp, box.missing, index),
                         .head = box.head,
                         .row = __shfl_sync(full_warp, box.row, index),
                         .batch = __shfl_sync(full_warp, box.batch, index)};
    if (index >= Traits::boxes) break;
    load_panel(tile + panel * Tile::panel_bytes + index * Traits::box_rows * Tile::row_bytes, map, full,
               panel * Tile::columns, own);
  }
}

}  // namespace jit::forward_wgmma
