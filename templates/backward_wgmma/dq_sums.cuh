// Where dQ is summed: in fp32, in global memory, tile after tile, and in a tile in the order in which consumers hold it
// in their registers, and leave it in shared memory (dq_place.cuh), so that what is added is bytes side by side.
//
//     tile (batch entry, head, tile of queries), or (head, place of a tile) of varlen queries (base/varlen_tiles.cuh)
//       part of consumer 0, of consumer 1; of a consumer of dQ alone, one for each panel of K
//         column block of 8: four numbers of each of the 128 threads
#pragma once

#include "backward_wgmma/traits.cuh"
#include "base/gradient_params.cuh"
#include "base/params.cuh"
#include "base/varlen_tiles.cuh"
#include "problem/entry_sequences.cuh"
#include "scheduling/varlen_place.cuh"

namespace jit::backward_wgmma {

/// Tiles of queries of a head, or places of those of all sequences. LSE and delta have room for all of their queries.
template <class Config>
__device__ __forceinline__ int query_tiles(const AttentionParams& params) {
  if constexpr (Config::sequences_q == SequenceKind::varlen) {
    return static_cast<int>(varlen_tiles(params.batch, params.sequences.total_q, Config::tile_q));
  } else {
    return (DenseSequences<Config>::longest_q(params) + Config::tile_q - 1) / Config::tile_q;
  }
}

/// The index of the first tile of a head of a batch entry, whose sequences these are, among all of the call.
template <class Config>
__device__ __forceinline__ long long first_query_tile(const AttentionParams& params,
                                                      const SequencesOf<Config>& sequences, int batch,
                                                      int head) {
  if constexpr (Config::sequences_q == SequenceKind::varlen) {
    return static_cast<long long>(head) * query_tiles<Config>(params) +
           // mutate: SumsOfTheFirstSequence
           first_varlen_tile(batch, sequences.q(batch).begin, Config::tile_q);
  } else {
    return (static_cast<long long>(batch) * params.heads_q + head) * query_tiles<Config>(params);
  }
}

/// The tile of queries of a block that has one: of varlen queries perhaps nobody's, whose first query there is not.
struct QueryTile {
  int batch;
  int head;
  int first_query;
};
template <class Config>
__device__ __forceinline__ QueryTile query_tile(const AttentionParams& params) {
  const int tiles = query_tiles<Config>(params);
  const int slice = static_cast<int>(blockIdx.x) / tiles;
  const int tile = static_cast<int>(blockIdx.x) - slice * tiles;
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
__device__ __forceinline__ float* dq_sums(const GradientParams& gradients, long long tile) {
  return gradients.dq_sums + tile * KernelTraits<Config>::dq_tile_floats;
}

/// The place of a query's LSE and −delta among those of its tile. A lane of a consumer reads four numbers of 16 queries
/// at once: those of its pair of columns in two blocks of 8.
__device__ __forceinline__ int statistic_place(int query) {
  const int in_step = query % 16;
  // mutate: QueriesOfAnotherOrder
  return query - in_step + in_step % 8 / 2 * 4 + in_step / 8 * 2 + in_step % 2;
}

}  // namespace jit::backward_wgmma
