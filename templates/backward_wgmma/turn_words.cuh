// Where it is kept which tiles of keys add to a tile of queries of sequences whose lengths the device alone knows: (tiles of
// queries of the call, words of a head's tiles of keys, rounded up), so that two of them can be copied at once. A bit for
// each tile of keys, counted within its sequence.
//
// The first tile of keys adds first (key_tiles.cuh). How many add before tile i is what a word says of those in front of its
// own tiles, and as many of its bits as are set below that of i.
#pragma once

#include "backward_wgmma/key_tile.cuh"
#include "backward_wgmma/smem_layout.cuh"
#include "backward_wgmma/tensor_maps.cuh"
#include "base/params.cuh"
#include "base/varlen_tiles.cuh"

namespace jit::backward_wgmma {

/// The word of tile 0 of keys at a tile of queries, counted among those of the call.
template <class Config>
__device__ __forceinline__ long long first_turn_word(const AttentionParams& params, long long query_tile) {
  if constexpr (Config::sequences_kv == SequenceKind::varlen) {
    return query_tile *  // mutate: WordsOfTheFirstTileOfQueries
           padded_turn_words(varlen_tiles(params.batch, params.sequences.total_k, Config::tile_kv));
  } else {
    return query_tile * padded_turn_words(key_tiles_of_head<Config>(params));
  }
}

/// How many add before tile `key_tile`, of whose word these are.
__device__ __forceinline__ int additions_before(const TurnWord& word, int key_tile) {
  // mutate: ATileIsBeforeItself
  return word.before + __popc(word.adds & ~(~0u << key_tile % turn_word_tiles));
}

}  // namespace jit::backward_wgmma
