#include "generator/launch/sequence_grid.h"

#include <algorithm>

#include "generator/launch/ceil_div.h"
#include "generator/problem/argument_table.h"
#include "templates/base/varlen_tiles.cuh"

namespace jit {

namespace {

// 0 if no block has work.
int entries_of(const AttentionParams& params, bool is_varlen) {
  if (params.heads_q == 0) return 0;
  return is_varlen ? std::min(params.batch, 1) : params.batch;
}

}  // namespace

SequenceGrid query_grid(const AttentionSpec& spec, const AttentionParams& params, int rows) {
  const bool is_varlen = has_varlen_q(spec);
  const int tiles = is_varlen ? static_cast<int>(varlen_tiles(params.batch, params.sequences.total_q, rows))
                              : ceil_div(params.seqlen_q, rows);
  return {tiles, entries_of(params, is_varlen)};
}

SequenceGrid key_grid(const AttentionSpec& spec, const AttentionParams& params, int rows) {
  const bool is_varlen = has_varlen_kv(spec);
  const int tiles = is_varlen ? static_cast<int>(varlen_tiles(params.batch, params.sequences.total_k, rows))
                              : ceil_div(params.seqlen_kv, rows);
  return {tiles, entries_of(params, is_varlen)};
}

}  // namespace jit
