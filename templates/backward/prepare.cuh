// The kernel before a one-pass kernel. It writes −delta, with delta = rowsum(dO ∘ O) − dLSE, and log2 Σ exp(score) of
// each query, zeros for the sums of dQ (unless the first block to add stores: turns.cuh), and the range of words of a
// tile's queries, if the mask has words. A block has a tile of queries. With dropout, gradients of scores, and so
// delta, are computed times the probability of keeping a score.
#pragma once

#include "backward/dq_sums.cuh"
#include "backward/key_waits.cuh"
#include "backward/output_gradients.cuh"
#include "backward/query_tile.cuh"
#include "base/row_pieces.cuh"
#include "problem/gradients.cuh"
#include "problem/key_memory.cuh"
#include "problem/masks.cuh"
#include "problem/scores.cuh"
#include "ptx/griddepcontrol.cuh"
#include "steps/dropout.cuh"
#include "steps/large_rows.cuh"

namespace jit {

inline constexpr int prepare_threads = 256;

/// Clears the sums of dQ of a tile of queries, counted in the call. By all threads of a block.
template <class Traits>
JIT_DEVICE void clear_sums(const GradientParams& gradients, long long tile) {
  uint4* const sums = reinterpret_cast<uint4*>(dq_sums<Traits>(gradients, tile));
#pragma unroll
  for (int i = threadIdx.x; i < Traits::dq_tile_floats / 4; i += prepare_threads)
    sums[i] = make_uint4(0, 0, 0, 0);  // mutate: NothingIsZeroed
}

/// Writes the range of words, or positions, of a tile's queries, for the producers of the kernel. By a warp.
template <class Config>
JIT_DEVICE void write_query_range(const SequencesOf<Config>& sequences, const GradientParams& gradients,
                                  int batch, int head, int first_query, long long tile) {
  using Mask = AskedMaskOf<Config>;
  using Record = typename TableMemory<Mask>::Record;
  const Mask mask(sequences.context(batch, head));
  const Record range = TableMemory<Mask>::query_range(
      mask, first_query, minimum(first_query + Config::tile_q, sequences.q(batch).length));
  if (lane_id() == 0) reinterpret_cast<Record*>(gradients.query_ranges)[tile] = range;
}

/// Finds the origins of large rows among a warp's rows of the block's tile. Computes the tile again, so that the rest
/// of the kernel keeps nothing in registers for this.
template <class Traits>
JIT_DEVICE void find_origins(const AttentionParams& params, const GradientParams& gradients,
                             int rows_at_once) {
  using Config = typename Traits::Config;
  const auto [batch, head, first_query] = query_tile<Config>(params, reread_block_index());
  const SequencesOf<Config> sequences(params, batch);
  const auto lse_rows = sequences.lse_rows(batch, head);
  const int end = minimum(first_query + Config::tile_q, sequences.q(batch).length);
  const int own_rows = rows_at_once / (prepare_threads / warp_size);
  const long long statistics =
      (first_query_tile<Config>(params, sequences, batch, head) + first_query / Config::tile_q) *
      Config::tile_q;
#pragma unroll 1
  for (int begin = first_query + warp_id() * own_rows; begin < end; begin += rows_at_once) {
#pragma unroll 1
    for (int query = begin; query < minimum(begin + own_rows, end); ++query) {
      if (!is_large_lse(*lse_rows.at(query))) continue;
      if (!KeyWaits<Config>(params).wait_for_all()) return;  // mutate: OriginsBeforeKeysArrive
      find_origin(LargeRows<Config>(params, gradients, sequences, batch, head), query,
                  gradients.origins + statistics + Traits::statistic_place(query - first_query),
                  gradients.large_rows);
    }
  }
}

/// Computes dO of a row, and returns the lane's part of its dot product with O. By a whole warp.
template <class Config, class Rows, class OutputRows>
JIT_DEVICE float prepare_row(const BlockContext& context, const GradientParams& gradients,
                             const Rows& do_rows, const OutputRows& o_rows, int query, bool exists,
                             const RawGradient& raw) {
  RowGradients<Config> own(context, gradients, query);
  float sum = 0;
  if (exists) {
    auto* const target = raw_gradient_rows<Config>(raw, context) + query * raw.strides.seq;
    for_pieces<Config>(own, do_rows.at(query), o_rows.at(query), [&](auto& piece, int d) {
      own.differentiate(piece, d);
      leave_rounded(target + d, piece.y);
#pragma unroll
      for (int i = 0; i < piece_columns; ++i)
        sum = __fmaf_rn(piece.y[i], piece.o[i], sum);  // mutate: DeltaOfTheWholeOutput
    });
  }
  own.write_sums(exists);
  return sum;
}

/// Writes what a score's distance from LSE counts for in the mean of its row, 0 for a row without keys. Returns the gradient
/// of the row's mean, times the share that dropout keeps. By one lane of a row.
template <class Config>
JIT_DEVICE float write_mean_statistic(const Gradients<Config>& gradients,
                                      const GradientParams& gradient_params, const DropoutParams& dropout,
                                      long long at, int batch, int head, int query, bool has_keys) {
  float d_mean = has_keys ? gradients.d_mean(batch, head, query) : 0;
  if constexpr (has_dropout<Config>) d_mean *= dropout.keep_probability;
  mean_statistics(gradient_params)[at] = d_mean * ln_2;
  return d_mean;
}

/// Prepares a tile of queries. With an output functor, first computes dO and writes it to `raw`.
template <class Traits, class... Raw>
JIT_DEVICE void prepare_backward(const AttentionParams& params, const GradientParams& gradient_params,
                                 const Raw&... raw) {
  using Config = typename Traits::Config;
  constexpr int lanes = 8;  // that share a row
  constexpr int piece = 8;  // elements that a lane reads at once
  griddepcontrol_wait();    // mutate: Prepare
  griddepcontrol_launch_dependents();
  const auto [batch, head, first_query] = query_tile<Config>(params);
  const SequencesOf<Config> sequences(params, batch);
  const Gradients<Config> gradients(params, gradient_params, sequences);
  const int seqlen_q = sequences.q(batch).length;
  if (has_entry_lengths<Config> && (first_query < 0 || first_query >= seqlen_q)) return;
  const auto do_rows = gradients.do_rows(batch, head);
  const auto o_rows = sequences.output_rows(batch, head);
  const auto lse_rows = sequences.lse_rows(batch, head);
  const long long tile =
      first_query_tile<Config>(params, sequences, batch, head) + first_query / Config::tile_q;

  if constexpr (!Config::deterministic) clear_sums<Traits>(gradient_params, tile);
  if constexpr (reads_query_ranges<Config>) {
    if (warp_id() == 0) write_query_range<Config>(sequences, gradient_params, batch, head, first_query, tile);
  }

  const int lane = threadIdx.x % lanes;
  bool has_large = false;
#pragma unroll
  for (int row = threadIdx.x / lanes; row < Config::tile_q; row += prepare_threads / lanes) {
    const int query = first_query + row;
    float sum = 0, lse = negative_infinity();
    if constexpr (differentiates_output<Config>)
      sum = prepare_row<Config>(sequences.context(batch, head), gradient_params, do_rows, o_rows, query,
                                query < seqlen_q, raw...);
    if (query < seqlen_q) {
      lse = *lse_rows.at(query);
#pragma unroll
      for (int d = differentiates_output<Config> ? Config::head_dim_v : lane * piece; d < Config::head_dim_v;
           d += lanes * piece) {
        float x[piece], y[piece];
        load_piece<Config::alignment>(do_rows.at(query) + d, x);
        load_piece<Config::alignment>(o_rows.at(query) + d, y);
#pragma unroll
        for (int i = 0; i < piece; ++i) sum = __fmaf_rn(x[i], y[i], sum);  // mutate: DeltaLeftOut
      }
    }
#pragma unroll
    for (int other = 1; other < lanes; other *= 2) sum += __shfl_xor_sync(full_warp, sum, other);
    if (lane == 0) {
      // mutate: NoGradientOfLseInPrepare
      if (lse != negative_infinity()) sum -= gradients.d_lse(batch, head, query);
      if constexpr (has_mean_score<Config>) {
        // mutate: MeanLeftOutOfPreparedDelta
        if (lse != negative_infinity()) sum -= gradients.d_mean_of_delta(batch, head, query);
      }
      if constexpr (has_dropout<Config>) sum *= params.dropout.keep_probability;
      const long long at = tile * Config::tile_q + Traits::statistic_place(row);
      const float lse_log2 = lse_exponent(lse);
      const bool is_large = is_large_lse(lse);
      if constexpr (has_mean_score<Config>) {
        const float d_mean = write_mean_statistic<Config>(gradients, gradient_params, params.dropout, at,
                                                          batch, head, query, lse != negative_infinity());
        if (lse_log2 != -negative_infinity()) sum -= d_mean * lse;  // mutate: MeansRelativeToNothing
      }
      gradient_params.lse_log2[at] = lse_log2;
      gradient_params.delta[at] = -sum;
      // mutate: RowsWithoutKeysHaveAnyOrigin
      if (lse_log2 == -negative_infinity() && !is_large) gradient_params.origins[at] = no_origin();
      has_large |= is_large;
    }
  }
  if (__builtin_expect(__any_sync(full_warp, has_large), false))  // mutate: LargeRowsAreLeftToLse
    find_origins<Traits>(params, gradient_params, prepare_threads / lanes);
}

}  // namespace jit
