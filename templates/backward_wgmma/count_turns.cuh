// Counts, before a deterministic one-pass kernel runs, how many tiles of keys add to a tile of queries before each one that
// adds (turns.cuh), and clears the counter of additions, and the sums where nobody adds. A block has a tile of queries.
//
// Of tiles of keys whose times mix with one another (HeadVisits::contested) it records which ones the mask leaves,
// and then compares their times.
#pragma once

#include "backward_wgmma/dq_sums.cuh"
#include "backward_wgmma/key_tile.cuh"
#include "backward_wgmma/prepare.cuh"
#include "backward_wgmma/tensor_maps.cuh"
#include "backward_wgmma/turn_counts.cuh"
#include "problem/functor.cuh"
#include "problem/masks.cuh"
#include "ptx/griddepcontrol.cuh"

namespace jit::backward_wgmma {

/// Asks the mask about each of `tiles` of keys at a tile of queries, and calls `f` with a tile's index and whether it adds.
/// By all threads of a block.
template <class Config, class F>
__device__ __forceinline__ void for_each_adder(const BlockContext& context, int first_query,
                                               const KeyTiles& tiles, F f) {
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

template <class Config>
__device__ __forceinline__ void count_turns(const AttentionParams& params, const GradientParams& gradients,
                                            const Turns& turns) {
  __shared__ bool adds[2 * max_sharers];
  griddepcontrol_wait();  // mutate: CountTurns
  const HeadVisits& visits = turns.visits;
  const auto [batch, head, first_query] = query_tile<Config>(params);
  const SequencesOf<Config> sequences(params, batch);
  const BlockContext context = sequences.context(batch, head);
  const int query_tile = first_query / Config::tile_q, key_tiles = key_tiles_of_head<Config>(params);
  const bool backward = visits.begins_backward(batch * params.heads_kv + head / Config::gqa_ratio);
  const long long tile = first_query_tile<Config>(params, sequences, batch, head) + query_tile;
  int* const counts = turns.before + first_turn_count<Config>(params, tile);
  if (threadIdx.x == 0) turns.additions[tile] = 0;  // mutate: AdditionsAreNotCleared
  for (int i = key_tiles + threadIdx.x; i < padded_turn_counts(key_tiles); i += blockDim.x) counts[i] = 0;
  int before = 0;  // of those that are through
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
  if (before == 0) clear_sums<Config>(gradients, tile);
}

}  // namespace jit::backward_wgmma
