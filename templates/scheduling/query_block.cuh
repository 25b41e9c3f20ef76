// Which tile of queries a block computes, of kernels with a block for each: dense or varlen.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "base/varlen_tiles.cuh"
#include "problem/sequences.cuh"
#include "problem/variable_sequences.cuh"
#include "scheduling/block_place.cuh"
#include "scheduling/varlen_place.cuh"

namespace jit {

/// The tile of this block: of varlen queries, in a grid of (heads, places of tiles), perhaps nobody's.
template <class Config, int tile_q>
__device__ __forceinline__ WorkTile query_block(const AttentionParams& params) {
  if constexpr (Config::sequences_q == SequenceKind::varlen) {
    const VariableSequences<Config> sequences(params);
    const int places = static_cast<int>(varlen_tiles(params.batch, params.sequences.total_q, tile_q));
    const auto [batch, first_query] =
        varlen_place<tile_q>(places - 1 - params.q_tile_begin - static_cast<int>(blockIdx.y), params.batch,
                             [&](int entry) { return sequences.q(entry).begin; });
    return {.batch = batch, .head = static_cast<int>(blockIdx.x), .q_begin = first_query};
  } else {
    return block_tile<tile_q>(params, DenseSequences<Config>::longest_q(params));
  }
}

}  // namespace jit
