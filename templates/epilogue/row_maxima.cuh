// Further outputs: the largest score of each head, and of each row.
//
// Both are maxima over calls: a call raises the values in the tensors, and order does not matter. So splits of keys
// need no merge, and several calls, for micro-batches or shards of keys, share one tensor.
#pragma once

#include "base/element.cuh"
#include "base/params.cuh"
#include "base/prelude.cuh"
#include "base/rows.cuh"
#include "problem/scores.cuh"
#include "ptx/atomic.cuh"
#include "ptx/math.cuh"
#include "steps/softmax.cuh"

namespace jit {

/// The largest scores of a sequence and head, one per query.
struct RowMaxima {
  DenseRows<float> rows;
  int seqlen_q;
};

/// The factor that turns row maxima into scores.
template <class Config>
JIT_DEVICE float score_factor(const AttentionParams& params) {
  using Score = typename Config::Score;
  return Score::is_identity ? params.softmax_scale : ScoreFactors<Score>::output;
}

/// A row's largest score; −inf for a row without keys, or whose scores all stand for −inf.
template <class State>
JIT_DEVICE float largest_score_of_row(const State& state, int r, float factor) {
  return state.largest[r] < least_score ? negative_infinity() : state.largest[r] * factor;
}

/// Raises the tensors of largest scores to those of a product's rows of `head`; the first row is query `first_row`.
/// find_rows() returns RowMaxima. Rows from the last query on have scores of zeros and are skipped. By a whole warp.
template <class Config, class Product, class State, class FindRows>
JIT_DEVICE void raise_maxima(const AttentionParams& params, int head, FindRows find_rows, int first_row,
                             const State& state) {
  if constexpr (keeps_largest_scores<Config>) {
    using Layout = typename Product::Layout;
    const RowMaxima found = find_rows();
    const float factor = score_factor<Config>(params);
    float of_head = negative_infinity();
    Product::for_each_row(first_row, [&](int r, int upper_row) {
      const int row = upper_row + Layout::own_row();
      if (row >= found.seqlen_q) return;  // mutate: RowsOfNobodyCount
      const float score = largest_score_of_row(state, r, factor);
      of_head = fmaxf(of_head, score);
      if constexpr (has_row_max<Config>) {
        if (Layout::is_row_leader(lane_id())) atomic_max_relaxed(found.rows.at(row), score);
      }
    });
    if constexpr (has_max_logit<Config>) {
#pragma unroll
      for (int distance = warp_size / 2; distance > 0; distance /= 2)
        of_head = fmaxf(of_head, __shfl_xor_sync(full_warp, of_head, distance));  // mutate: HeadOfOneLane
      if (lane_id() == 0) atomic_max_relaxed(params.outputs.max_logit + head, of_head);
    }
  }
}

}  // namespace jit
