// Coordinates of tiles that TMA copies: their first row, or boxes that end with their sequence (tiles/bounded_box.cuh).
#pragma once

#include "backward/tensor_maps.cuh"
#include "problem/entry_sequences.cuh"
#include "tiles/bounded_box.cuh"
#include "tiles/box_copy.cuh"

namespace jit {

/// The map, or pair of maps, of a tensor that is copied in tiles of `rows` rows.
JIT_DEVICE const TensorMap& map_of(const TensorMaps& maps, TensorMap TensorMaps::*whole,
                                   TensorMap SequenceMaps::*, int) {
  return maps.*whole;
}
JIT_DEVICE BoundedMap map_of(const SequenceMaps& maps, TensorMap TensorMaps::*whole,
                             TensorMap SequenceMaps::*part, int rows) {
  return {maps.*whole, maps.*part, rows};
}

/// The box of the tile of queries from `query` on, and that of `rows` keys from `key` on.
template <class Config>
JIT_DEVICE auto query_box(const SequencesOf<Config>& sequences, int batch, int head, int query) {
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
JIT_DEVICE auto key_box(const SequencesOf<Config>& sequences, int batch, int kv_head, int key, int rows) {
  if constexpr (has_entry_lengths<Config>) {
    const Sequence own = sequences.kv(batch);
    return bounded_box(rows, own.begin + key, own.length - key, kv_head,  // mutate: KeysOfTheNextSequence
                       Config::sequences_kv == SequenceKind::varlen ? 0 : batch);
  } else {
    return sequences.key_place(batch, kv_head, key);
  }
}

}  // namespace jit
