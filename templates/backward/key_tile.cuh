// A tile of keys of a one-pass kernel, which one block owns.
#pragma once

#include "base/params.cuh"
#include "problem/entry_sequences.cuh"
#include "scheduling/query_block.cuh"
#include "tiles/shared_words.cuh"

namespace jit {

struct KeyPlace {
  int batch;
  int kv_head;
  int k_begin;         ///< outside of the sequence if the place is empty: negative, or after its last key
  unsigned round = 0;  ///< index of the tile among those of the block
};

/// no_key_tile: no tile is left; empty_key_tile: the tile that was taken lies after the last one of its head.
inline constexpr int no_key_tile = -1, empty_key_tile = -2;

/// A tile of keys and the sequences of its batch entry; dense ones are constructed on each use, which is free.
template <class Config, bool on_device = has_entry_lengths<Config>>
struct KeyTile : KeyPlace {
  JIT_DEVICE KeyTile(const AttentionParams&, const KeyPlace& place) : KeyPlace(place) {}
  JIT_DEVICE bool is_there() const { return true; }
  JIT_DEVICE DenseSequences<Config> sequences(const AttentionParams& params) const {
    return DenseSequences<Config>(params);
  }
};
/// Reads the sequences once, if their lengths are on the device.
template <class Config>
struct KeyTile<Config, true> : KeyPlace {
  Sequence q;
  Sequence kv;
  JIT_DEVICE KeyTile(const AttentionParams& params, const KeyPlace& place) : KeyPlace(place) {
    const EntrySequences<Config> read(params, batch);
    q = {uniform(read.q(batch).begin), uniform(read.q(batch).length)};
    kv = {uniform(read.kv(batch).begin), uniform(read.kv(batch).length)};
  }
  // mutate: PlacesOfNobodyAreTiles
  JIT_DEVICE bool is_there() const { return k_begin >= 0 && k_begin < kv.length; }
  JIT_DEVICE EntrySequences<Config> sequences(const AttentionParams& params) const { return {params, q, kv}; }
};

/// Tiles of keys of a head of dense sequences.
template <class Config>
JIT_DEVICE int key_tiles_of_head(const AttentionParams& params) {
  return (DenseSequences<Config>::longest_kv(params) + Config::tile_kv - 1) / Config::tile_kv;
}

/// Tile `tile` of a launch, counted head by head. By whole warps.
template <class Config>
JIT_DEVICE KeyTile<Config> key_tile(const AttentionParams& params, int tile) {
  if constexpr (Config::sequences_kv == SequenceKind::varlen) {
    const int places =
        static_cast<int>(varlen_tiles(params.batch, params.sequences.total_k, Config::tile_kv));
    const int kv_head = tile / places;  // mutate: KeysOfAnotherHead
    const VariableSequences<Config> sequences(params);
    const auto [batch, first_key] = varlen_place<Config::tile_kv>(
        tile - kv_head * places, params.batch, [&](int entry) { return sequences.kv_begin(entry); });
    return {params, {.batch = uniform(batch), .kv_head = kv_head, .k_begin = uniform(first_key)}};
  } else {
    const int tiles = key_tiles_of_head<Config>(params);
    const int slice = tile / tiles;
    return {params,
            {.batch = params.batch_begin + slice / params.heads_kv,
             .kv_head = slice % params.heads_kv,
             .k_begin = (tile - slice * tiles) * Config::tile_kv}};
  }
}

}  // namespace jit
