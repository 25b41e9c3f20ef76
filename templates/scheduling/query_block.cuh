// Which tile of queries a block computes, of kernels with a block for each: dense or varlen.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "base/varlen_tiles.cuh"
#include "problem/sequences.cuh"
#include "problem/variable_sequences.cuh"
#include "scheduling/varlen_place.cuh"
#include "scheduling/work_tiles.cuh"

namespace jit {

/// The tile of this block in a grid of (heads, query tiles, batch). Later queries see more keys under most
/// masks: the blocks of all heads start with them, which leaves the short blocks for the end, when they even
/// out what each multiprocessor has to do. Computed anew at each call, so that a kernel need not keep it in
/// registers through its main loop; without a division, so that it stays in uniform registers.
template <int tile_q>
__device__ __forceinline__ WorkTile block_tile(const AttentionParams& params, int seqlen_q) {
  const int tiles_q = (seqlen_q + tile_q - 1) / tile_q;
  return {.batch = params.batch_begin + static_cast<int>(blockIdx.z),
          .head = static_cast<int>(blockIdx.x),
          .q_begin = (tiles_q - 1 - params.q_tile_begin - static_cast<int>(blockIdx.y)) * tile_q};
}

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
