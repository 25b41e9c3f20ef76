// Tile infos, before a deterministic one-pass kernel of sequences runs whose lengths the device alone knows, which
// tiles of keys add to a tile of queries (turn_words.cuh), and clears the counter of additions, and the sums where
// nobody adds. A block has a tile of queries.
#pragma once

#include "backward_wgmma/dq_sums.cuh"
#include "backward_wgmma/prepare.cuh"
#include "backward_wgmma/turn_words.cuh"
#include "problem/functor.cuh"
#include "problem/masks.cuh"
#include "ptx/griddepcontrol.cuh"

namespace jit::backward_wgmma {

/// Which of the tiles of keys of a word add to the tile of queries from `first_query` on. By a warp.
template <class Config>
__device__ __forceinline__ unsigned adders_of_word(const BlockContext& context, int first_query, int word) {
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

template <class Config>
__device__ __forceinline__ void record_turns(const AttentionParams& params, const GradientParams& gradients,
                                             const Turns& turns) {
  constexpr int warps = prepare_threads / warp_size;
  __shared__ int adders[warps];
  griddepcontrol_wait();
  const auto [batch, head, first_query] = query_tile<Config>(params);
  const SequencesOf<Config> sequences(params, batch);
  const BlockContext context = sequences.context(batch, head);
  if (first_query < 0 || first_query >= context.seqlen_q) return;
  const long long tile =
      first_query_tile<Config>(params, sequences, batch, head) + first_query / Config::tile_q;
  TurnWord* const words = turns.words + first_turn_word<Config>(params, tile);
  if (threadIdx.x == 0) turns.additions[tile] = 0;  // mutate: AdditionsToVarlenOnesAreNotCleared
  const int key_tiles = (context.seqlen_kv + Config::tile_kv - 1) / Config::tile_kv;
  const int own_warp = warp_id();
  int before = 0;  // of the words that are through
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
  if (before == 0) clear_sums<Config>(gradients, tile);  // mutate: SumsOfQueriesWithoutKeysAreNotCleared
}

}  // namespace jit::backward_wgmma
