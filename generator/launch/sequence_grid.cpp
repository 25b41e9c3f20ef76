#include "generator/launch/sequence_grid.h"

#include "generator/launch/ceil_div.h"
#include "generator/problem/argument_table.h"
#include "templates/base/ragged_tiles.cuh"

namespace jit {

SequenceGrid query_grid(const AttentionSpec& spec, const AttentionParams& params, int rows) {
  if (has_ragged_q(spec))
    return {static_cast<int>(ragged_tiles(params.batch, params.sequences.total_q, rows)), 1};
  return {ceil_div(params.seqlen_q, rows), params.batch};
}

SequenceGrid key_grid(const AttentionSpec& spec, const AttentionParams& params, int rows) {
  if (has_ragged_kv(spec))
    return {static_cast<int>(ragged_tiles(params.batch, params.sequences.total_k, rows)), 1};
  return {ceil_div(params.seqlen_kv, rows), params.batch};
}

}  // namespace jit
