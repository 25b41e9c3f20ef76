// Records, before a deterministic kernel of gradients runs, how many tiles of keys add to a tile of queries before each
// one that adds (turns.cuh). A block has a tile of queries.
#pragma once

#include "backward/query_tile.cuh"
#include "backward/turns.cuh"
#include "problem/functor.cuh"
#include "problem/masks.cuh"

namespace jit {

/// Whether a tile of keys adds to the tile of queries from `first_query` on. By all lanes if the mask needs a warp.
template <class Config>
JIT_DEVICE bool adds_to(const BlockContext& context, int first_query, int key_tile) {
  const typename Config::Mask mask(context);
  const int key = key_tile * Config::tile_kv;
  return key < context.seqlen_kv &&
         mask.classify({.q_begin = first_query,
                        .q_end = minimum(first_query + Config::tile_q, context.seqlen_q),
                        .k_begin = key,
                        // mutate: PartialTilesAreForgotten
                        .k_end = minimum(key + Config::tile_kv, context.seqlen_kv)}) != TileClass::empty;
}

/// Classifies the tiles of keys from `begin` to `end` at a tile of queries, and calls `f` with the tile's index and whether
/// it adds. By all threads of a block.
template <class Config, class F>
JIT_DEVICE void for_each_adder(const BlockContext& context, int first_query, int begin, int end, F f) {
  constexpr bool by_warps = needs_warp<typename Config::Mask>;
  const int width = by_warps ? warp_size : 1;
  for (int i = begin + threadIdx.x / width; i < end; i += blockDim.x / width) {
    const bool adds = adds_to<Config>(context, first_query, i);
    if (!by_warps || lane_id() == 0) f(i, adds);
  }
}

/// Writes the counts of tile `tile` of the call, `queries`. Returns how many add. By all threads of a block.
///
/// Tiles of keys are handled in groups, in the order in which these add: the tiles of a round or, if blocks draw tiles,
/// as many as shared memory has flags. The block first records which ones the mask keeps, then compares their turns.
template <class Config>
JIT_DEVICE int write_turn_counts(const AttentionParams& params, const Turns& turns,
                                 const BlockContext& context, const QueryTile& queries, long long tile) {
  __shared__ bool adds[max_sharers];
  constexpr bool in_rounds = schedule_of<Config> == Schedule::shared_heads;
  const HeadVisits& visits = turns.visits;
  const auto [batch, head, first_query] = queries;
  const int kv_head = head / Config::gqa_ratio, key_tiles = key_tiles_of_head<Config>(params);
  const bool backward = in_rounds && visits.begins_backward(batch * params.heads_kv + kv_head),
             last_is_first = !in_rounds && last_adds_first(params, turns, batch, kv_head);
  const int size = in_rounds ? visits.sharers : max_sharers, groups = (key_tiles + size - 1) / size;
  int* const counts = turns.before + first_turn<Config>(params, tile);
  for (int i = key_tiles + threadIdx.x; i < padded_turn_counts(key_tiles); i += blockDim.x) counts[i] = 0;
  int before = 0;  // additions of groups that come before
  for (int group = 0; group < groups; ++group) {
    const int begin = (last_is_first ? groups - 1 - group : group) * size,
              end = minimum(begin + size, key_tiles);
    for_each_adder<Config>(context, first_query, begin, end, [&](int i, bool yes) { adds[i - begin] = yes; });
    __syncthreads();
    for (int own = begin + threadIdx.x; own < end; own += blockDim.x) {
      int count = before;
      for (int other = begin; other < end; ++other) {
        const bool is_before = in_rounds ? visits.is_before(other, own, head % Config::gqa_ratio,
                                                            first_query / Config::tile_q, backward)
                                         : (last_is_first ? other > own : other < own);
        if (adds[other - begin] && is_before) ++count;
      }
      counts[own] = count;  // mutate: AllAreTakenForFirst
    }
    for (int i = begin; i < end; ++i) before += adds[i - begin] ? 1 : 0;
    __syncthreads();
  }
  return before;
}

/// A bit for each tile of keys of a word that adds to the tile of queries from `first_query` on. By a warp.
template <class Config>
JIT_DEVICE unsigned adders_of_word(const BlockContext& context, int first_query, int word) {
  const int first = word * turn_word_tiles;
  if constexpr (needs_warp<typename Config::Mask>) {
    unsigned bits = 0;
    for (int i = 0; i < turn_word_tiles && (first + i) * Config::tile_kv < context.seqlen_kv; ++i)
      bits |= (adds_to<Config>(context, first_query, first + i) ? 1u : 0u) << i;
    return bits;
  } else {
    return __ballot_sync(full_warp, adds_to<Config>(context, first_query, first + lane_id()));
  }
}

/// Writes the words of tile `tile` of the call, `queries`. Returns how many tiles of keys add. By all `threads` threads of
/// a block.
template <class Config, int threads>
JIT_DEVICE int write_turn_words(const AttentionParams& params, const Turns& turns,
                                const BlockContext& context, const QueryTile& queries, long long tile) {
  constexpr int warps = threads / warp_size;
  __shared__ int adders[warps];
  TurnWord* const words = turns.words + first_turn<Config>(params, tile);
  const int key_tiles = (context.seqlen_kv + Config::tile_kv - 1) / Config::tile_kv;
  const int own_warp = warp_id();
  const bool last_is_first = last_adds_first(params, turns, queries.batch, queries.head / Config::gqa_ratio);
  int before = 0;  // additions of words that come before
  const int end = padded_turn_words(key_tiles);
  for (int begin = 0; begin < end; begin += warps) {
    const bool is_word = begin + own_warp < end;
    const int word = last_is_first ? end - 1 - begin - own_warp : begin + own_warp;
    const unsigned adds = is_word ? adders_of_word<Config>(context, queries.first_query, word) : 0;
    if (lane_id() == 0) adders[own_warp] = __popc(adds);
    __syncthreads();
    int own = before;
    for (int warp = 0; warp < warps; ++warp) {
      if (warp < own_warp) own += adders[warp];
      before += adders[warp];
    }
    if (is_word && lane_id() == 0) words[word] = {adds, own};  // mutate: TilesOfOtherWordsAreForgotten
    __syncthreads();
  }
  return before;
}

}  // namespace jit
