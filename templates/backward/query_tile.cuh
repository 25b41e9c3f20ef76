// Tiles of queries of a launch: the places of their statistics and of their sums.
#pragma once

#include "backward/listed_queries.cuh"
#include "base/params.cuh"
#include "base/varlen_tiles.cuh"
#include "problem/entry_sequences.cuh"
#include "scheduling/query_block.cuh"

namespace jit {

/// Tiles of queries of a head, or places of those of all sequences. LSE and delta have room for all of their queries.
template <class Config>
JIT_DEVICE int query_tiles(const AttentionParams& params) {
  if constexpr (Config::sequences_q == SequenceKind::varlen) {
    return static_cast<int>(varlen_tiles(params.batch, params.sequences.total_q, Config::tile_q));
  } else {
    return (DenseSequences<Config>::longest_q(params) + Config::tile_q - 1) / Config::tile_q;
  }
}

/// The index in the call of the first tile of a head; `sequences` are those of the batch entry. Those that lists
/// have put together are counted so.
template <class Config>
JIT_DEVICE long long first_query_tile(const AttentionParams& params, const SequencesOf<Config>& sequences,
                                      int batch, int head) {
  if constexpr (has_listed_queries<Config>) {
    return 0;
  } else if constexpr (Config::sequences_q == SequenceKind::varlen) {
    return static_cast<long long>(head) * query_tiles<Config>(params) +
           // mutate: SumsOfTheFirstSequence
           first_varlen_tile(batch, sequences.q(batch).begin, Config::tile_q);
  } else {
    return (static_cast<long long>(batch) * params.heads_q + head) * query_tiles<Config>(params);
  }
}

/// The tile of queries of a block. With varlen queries the place may be empty; then its first query does not exist.
struct QueryTile {
  int batch;
  int head;
  int first_query;
};
template <class Config>
JIT_DEVICE QueryTile query_tile(const AttentionParams& params, int block) {
  const int tiles = query_tiles<Config>(params);
  const int slice = block / tiles, tile = block - slice * tiles;
  if constexpr (Config::sequences_q == SequenceKind::varlen) {
    const VariableSequences<Config> sequences(params);
    const auto [batch, first_query] =
        varlen_place<Config::tile_q>(tile, params.batch, [&](int entry) { return sequences.q_begin(entry); });
    return {batch, slice, first_query};
  } else {
    return {params.batch_begin + slice / params.heads_q, slice % params.heads_q, tile * Config::tile_q};
  }
}
template <class Config>
JIT_DEVICE QueryTile query_tile(const AttentionParams& params) {
  return query_tile<Config>(params, static_cast<int>(blockIdx.x));
}

}  // namespace jit
