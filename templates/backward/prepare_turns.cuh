// The second kernel before a deterministic one-pass kernel, next to prepare.cuh: it records the order of additions
// (backward/turns.cuh), clears the counters of additions, and clears sums to which no block adds. A block has a tile of
// queries.
#pragma once

#include "backward/dq_sums.cuh"
#include "backward/prepare.cuh"
#include "backward/write_turns.cuh"
#include "ptx/griddepcontrol.cuh"

namespace jit {

template <class Traits>
JIT_DEVICE void prepare_turns(const AttentionParams& params, const GradientParams& gradients,
                              const Turns& turns) {
  using Config = typename Traits::Config;
  griddepcontrol_wait();  // mutate: CountTurns
  const QueryTile queries = query_tile<Config>(params);
  const SequencesOf<Config> sequences(params, queries.batch);
  const BlockContext context = sequences.context(queries.batch, queries.head);
  if (has_entry_lengths<Config> && (queries.first_query < 0 || queries.first_query >= context.seqlen_q))
    return;
  const long long tile = first_query_tile<Config>(params, sequences, queries.batch, queries.head) +
                         queries.first_query / Config::tile_q;
  if (threadIdx.x == 0) turns.additions[tile] = 0;  // mutate: AdditionsAreNotCleared
  int added;
  if constexpr (has_entry_lengths<Config>) {
    added = write_turn_words<Config, prepare_threads>(params, turns, context, queries, tile);
  } else {
    added = write_turn_counts<Config>(params, turns, context, queries, tile);
  }
  if (added == 0) clear_sums<Traits>(gradients, tile);  // mutate: SumsOfQueriesWithoutKeysAreNotCleared
}

}  // namespace jit
