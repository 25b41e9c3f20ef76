// Records, before a deterministic kernel of gradients runs, how many tiles of keys add to a tile of queries before each
// one that adds (turns.cuh). A block has a tile of queries.
#pragma once

#include "backward/query_tile.cuh"
#include "backward/turns.cuh"
#include "problem/functor.cuh"
#include "problem/masks.cuh"

namespace jit {

/// Classifies each of `tiles` of keys at a tile of queries, and calls `f` with the tile's index and whether it adds. By
/// all threads of a block.
template <class Config, class F>
JIT_DEVICE void for_each_adder(const BlockContext& context, int first_query, const KeyTiles& tiles, F f) {
  const typename Config::Mask mask(context);
  constexpr bool by_warps = needs_warp<typename Config::Mask>;
  const int width = by_warps ? warp_size : 1;
  for (int i = tiles.begin + threadIdx.x / width; i < tiles.end; i += blockDim.x / width) {
    const ScoreTile tile{.q_begin = first_query,
                         .q_end = minimum(first_query + Config::tile_q, context.seqlen_q),
                         .k_begin = i * Config::tile_kv,
                         .k_end = minimum((i + 1) * Config::tile_kv, context.seqlen_kv)};
    const bool adds = mask.classify(tile) != TileClass::empty;  // mutate: PartialTilesAreForgotten
    if (!by_warps || lane_id() == 0) f(i, adds);
  }
}

/// Writes the counts of tile `tile` of the call, `queries`. Returns how many add. By all threads of a block.
///
/// Tiles of keys whose visits interleave (HeadVisits::contested) are handled together: the block first records which
/// ones the mask keeps, then compares their times.
template <class Config>
JIT_DEVICE int write_turn_counts(const AttentionParams& params, const Turns& turns,
                                 const BlockContext& context, const QueryTile& queries, long long tile) {
  __shared__ bool adds[2 * max_sharers];
  const HeadVisits& visits = turns.visits;
  const auto [batch, head, first_query] = queries;
  const int query_tile = first_query / Config::tile_q, key_tiles = key_tiles_of_head<Config>(params);
  const bool backward = visits.begins_backward(batch * params.heads_kv + head / Config::gqa_ratio);
  int* const counts = turns.before + first_turn<Config>(params, tile);
  for (int i = key_tiles + threadIdx.x; i < padded_turn_counts(key_tiles); i += blockDim.x) counts[i] = 0;
  int before = 0;  // additions of earlier groups of tiles
  for (int begin = 0; begin < key_tiles;) {
    const KeyTiles all = visits.contested(begin, backward);
    const KeyTiles tiles{all.begin, minimum(all.end, key_tiles)};
    for_each_adder<Config>(context, first_query, tiles,
                           [&](int i, bool yes) { adds[i - tiles.begin] = yes; });
    __syncthreads();
    for (int own = tiles.begin + threadIdx.x; own < tiles.end; own += blockDim.x) {
      int count = before;
      for (int other = tiles.begin; other < tiles.end; ++other) {
        if (adds[other - tiles.begin] &&
            visits.is_before(other, own, head % Config::gqa_ratio, query_tile, backward))
          ++count;
      }
      counts[own] = count;  // mutate: AllAreTakenForFirst
    }
    for (int i = tiles.begin; i < tiles.end; ++i) before += adds[i - tiles.begin] ? 1 : 0;
    __syncthreads();
    begin = tiles.end;
  }
  return before;
}

/// A bit for each tile of keys of a word that adds to the tile of queries from `first_query` on. By a warp.
template <class Config>
JIT_DEVICE unsigned adders_of_word(const BlockContext& context, int first_query, int word) {
  const typename Config::Mask mask(context);
  const auto adds = [&](int key_tile) {
    const int key = key_tile * Config::tile_kv;
    return key < context.seqlen_kv &&
           mask.classify({.q_begin = first_query,
                          .q_end = minimum(first_query + Config::tile_q, context.seqlen_q),
                          .k_begin = key,
                          // mutate: PartialVarlenTilesAreForgotten
                          .k_end = minimum(key + Config::tile_kv, context.seqlen_kv)}) != TileClass::empty;
  };
  const int first = word * turn_word_tiles;
  if constexpr (needs_warp<typename Config::Mask>) {
    unsigned bits = 0;
    for (int i = 0; i < turn_word_tiles && (first + i) * Config::tile_kv < context.seqlen_kv; ++i)
      bits |= (adds(first + i) ? 1u : 0u) << i;
    return bits;
  } else {
    return __ballot_sync(full_warp, adds(first + lane_id()));
  }
}

/// Writes the words of tile `tile` of the call, whose queries begin with `first_query`. Returns how many add. By all `threads`
/// threads of a block.
template <class Config, int threads>
JIT_DEVICE int write_turn_words(const AttentionParams& params, const Turns& turns,
                                const BlockContext& context, int first_query, long long tile) {
  constexpr int warps = threads / warp_size;
  __shared__ int adders[warps];
  TurnWord* const words = turns.words + first_turn<Config>(params, tile);
  const int key_tiles = (context.seqlen_kv + Config::tile_kv - 1) / Config::tile_kv;
  const int own_warp = warp_id();
  int before = 0;  // additions of earlier words
  const int end = padded_turn_words(key_tiles);
  for (int begin = 0; begin < end; begin += warps) {
    const int word = begin + own_warp;
    const unsigned adds = word < end ? adders_of_word<Config>(context, first_query, word) : 0;
    if (lane_id() == 0) adders[own_warp] = __popc(adds);
    __syncthreads();
    int own = before;
    for (int warp = 0; warp < warps; ++warp) {
      if (warp < own_warp) own += adders[warp];
      before += adders[warp];
    }
    if (word < end && lane_id() == 0) words[word] = {adds, own};  // mutate: TilesOfOtherWordsAreForgotten
    __syncthreads();
  }
  return before;
}

}  // namespace jit
