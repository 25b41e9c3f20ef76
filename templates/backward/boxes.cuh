// Copies of tiles by TMA: where their rows begin, or the boxes that end with their sequence.
#pragma once

#include "backward/tensor_maps.cuh"
#include "problem/entry_sequences.cuh"
#include "ptx/bulk_tensor.cuh"
#include "tiles/bounded_box.cuh"
#include "tiles/bounded_copy.cuh"

namespace jit {

/// Starts the copy of a panel of a tile whose first row is `first`. By one thread.
__device__ __forceinline__ void load_panel(unsigned panel, const TensorMap& map, unsigned full, int column,
                                           const RowPlace& first) {
  cp_async_bulk_tensor_load(panel, map, full, column, first.seq, first.head, first.batch);
}

/// Starts the copy of a panel to the rows from `first` on. By one thread.
__device__ __forceinline__ void store_panel(unsigned panel, const TensorMap& map, int column,
                                            const RowPlace& first) {
  cp_async_bulk_tensor_store(map, panel, column, first.seq, first.head, first.batch);
}

/// Starts the copies of all panels of a tile, whose rows begin somewhere, or lie in a box that ends with their sequence.
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

}  // namespace jit
