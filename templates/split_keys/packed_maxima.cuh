// The largest scores of packed rows, which belong to several heads (epilogue/row_maxima.cuh).
#pragma once

#include "base/element.cuh"
#include "base/params.cuh"
#include "base/prelude.cuh"
#include "epilogue/row_maxima.cuh"
#include "problem/variable_sequences.cuh"
#include "ptx/atomic.cuh"
#include "split_keys/packed_rows.cuh"
#include "split_keys/split_info.cuh"

namespace jit {

/// Raises the largest scores of rows of a work tile, from row `first_row` on, to those that the warp has seen. Each
/// split does so, and each warp with keys of its own.
template <class Config, class Product, class State>
JIT_DEVICE void raise_packed_maxima(const AttentionParams& params, const SplitInfo& info, int first_row,
                                    const State& state) {
  if constexpr (keeps_largest_scores<Config>) {
    using Layout = typename Product::Layout;
    if (!Layout::is_row_leader(lane_id())) return;
    const float factor = score_factor<Config>(params);
    Product::for_each_row(info.row_begin + first_row, [&](int r, int upper_row) {
      const int row = upper_row + Layout::own_row();
      if (row >= info.q.length * Config::gqa_ratio) return;  // mutate: PackedRowsOfNobodyCount
      const PackedRow<Config> place(info.kv_head, row);
      const float score = largest_score_of_row(state, r, factor);
      if constexpr (has_max_logit<Config>) atomic_max_relaxed(params.outputs.max_logit + place.head, score);
      if constexpr (has_row_max<Config>) {
        const long long offset = VariableSequences<Config>::query_offset(
            params.outputs.row_max_strides, info.batch, place.head, info.q.begin + place.query);
        atomic_max_relaxed(params.outputs.row_max + offset, score);
      }
    });
  }
}

}  // namespace jit
