// The kernel after a one-pass kernel: it scales and rounds the sums of dQ and writes its rows; each family reads the
// sums in its own layout. Then the grid adds the gradients of large rows, which the one-pass kernel has skipped: to dQ
// for the rows of each block, to dK and dV tile by tile.
#pragma once

#include "backward/dq_sums.cuh"
#include "backward/query_tile.cuh"
#include "problem/gradients.cuh"
#include "problem/masks.cuh"
#include "problem/scores.cuh"
#include "scheduling/query_block.cuh"
#include "steps/dropout.cuh"
#include "steps/large_row_gradients.cuh"

namespace jit {

/// Returns place(head, query), the index of a query's statistics; stored deltas have the factor below.
template <class Traits>
JIT_DEVICE auto statistic_places(const AttentionParams& params,
                                 const SequencesOf<typename Traits::Config>& sequences, int batch) {
  using Config = typename Traits::Config;
  return [&params, &sequences, batch](int head, int query) {
    return first_query_tile<Config>(params, sequences, batch, head) * Config::tile_q +
           Traits::statistic_place(query);
  };
}
inline constexpr float one_pass_delta_factor = -1;

/// Writes dq of the large rows of the block's tile of queries, one warp per row. Computes the tile again, so that the
/// rest of the kernel keeps nothing in registers for this.
template <class Traits>
JIT_DEVICE void write_large_rows_of_tile(const AttentionParams& params,
                                         const GradientParams& gradient_params) {
  using Config = typename Traits::Config;
  const auto [batch, head, first_query] = query_tile<Config>(params, reread_block_index());
  const SequencesOf<Config> sequences(params, batch);
  const int end = minimum(first_query + Config::tile_q, sequences.q(batch).length);
  if (has_entry_lengths<Config> && first_query < 0) return;
  const auto place = statistic_places<Traits>(params, sequences, batch);
#pragma unroll 1
  for (int query = first_query + warp_id(); query < end; query += static_cast<int>(blockDim.x) / warp_size) {
    const long long at = place(head, query);
    if (gradient_params.lse_log2[at] != -negative_infinity()) continue;
    const RowOrigin origin = gradient_params.origins[at];
    if (!is_large_row(origin)) continue;
    write_large_row<Config>(
        params, LargeRows<Config>(params, gradient_params, sequences, batch, head), query, origin,
        gradient_params.delta[at] * one_pass_delta_factor,
        Gradients<Config>(params, gradient_params, sequences).dq_rows(batch, head).at(query));
  }
}

/// Adds the gradients of large rows to dk and dv of the grid's batch entries: blocks take tiles of keys in turn.
template <class Traits>
JIT_DEVICE void add_large_rows_by_tiles(const AttentionParams& params,
                                        const GradientParams& gradient_params) {
  using Config = typename Traits::Config;
  constexpr int rows = 32;
  constexpr bool is_varlen = Config::sequences_kv == SequenceKind::varlen;
  const VariableSequences<Config> all(params);
  const int longest = Config::seqlen_kv != 0 ? Config::seqlen_kv : params.seqlen_kv;
  const int tiles = is_varlen ? static_cast<int>(varlen_tiles(params.batch, params.sequences.total_k, rows))
                              : (longest + rows - 1) / rows;
  // Varlen queries have one grid.
  const int entries = Config::sequences_q == SequenceKind::varlen
                          ? params.batch
                          : static_cast<int>(gridDim.x) / (params.heads_q * query_tiles<Config>(params));
  const long long slices = static_cast<long long>(params.heads_kv) * (is_varlen ? 1 : entries);
#pragma unroll 1
  for (long long i = reread_block_index(); i < slices * tiles; i += gridDim.x) {
    const int slice = static_cast<int>(i / tiles), tile = static_cast<int>(i % tiles);
    const int kv_head = slice % params.heads_kv;
    int batch = params.batch_begin + slice / params.heads_kv, first_key = tile * rows;
    if constexpr (is_varlen) {
      const auto found =
          varlen_place<rows>(tile, params.batch, [&](int entry) { return all.kv(entry).begin; });
      batch = found.batch;
      first_key = found.first_row;
      if (first_key < 0 || batch < params.batch_begin || batch >= params.batch_begin + entries) continue;
    }
    const SequencesOf<Config> sequences(params, batch);
    const int end = minimum(first_key + rows, sequences.kv(batch).length);
    add_large_rows<Config, true, true>(params, gradient_params, sequences, batch, kv_head, first_key, end,
                                       statistic_places<Traits>(params, sequences, batch),
                                       one_pass_delta_factor);
  }
}

/// `convert_tile()` writes the rows of the block's tile of queries.
template <class Traits, class ConvertTile>
JIT_DEVICE void convert_dq(const AttentionParams& params, const GradientParams& gradient_params,
                           const ConvertTile& convert_tile) {
  const bool has_large = has_large_rows(gradient_params);
  convert_tile();
  if (__builtin_expect(!has_large, true)) return;
  __syncthreads();  // rows are overwritten  // mutate: LargeRowsAreOverwritten
  write_large_rows_of_tile<Traits>(params, gradient_params);
  add_large_rows_by_tiles<Traits>(params, gradient_params);
  have_added_large_rows(gradient_params);
}

}  // namespace jit
