// Where a part of a tile of dQ goes when it has been summed: scaled and rounded, to rows of dQ.
#pragma once

#include "backward_wgmma/traits.cuh"
#include "problem/gradients.cuh"
#include "steps/dropout.cuh"
#include "steps/store_rows.cuh"

namespace jit::backward_wgmma {

/// Stores part `part` of a tile whose first query is `first_query`, as a warpgroup holds it in registers: `thread` is
/// counted in that.
template <class Config>
__device__ __forceinline__ void store_dq_part(const AttentionParams& params,
                                              const typename KernelTraits<Config>::QueryGradient& dq,
                                              const DenseRows<typename Config::Element>& rows, int part,
                                              int thread, int first_query, int row_end) {
  using Traits = KernelTraits<Config>;
  constexpr int columns = Traits::dq_columns;
  // mutate: PartsLeaveAsColumns
  constexpr int parts_of_columns = Traits::has_many_queries ? 1 : Traits::dq_parts;
  const int first_column = part % parts_of_columns * columns;
  const int first_row = first_query + part / parts_of_columns * rows_per_warpgroup + thread / warp_size * 16;
  const float scale =
      over_keep_probability<Config>(params.softmax_scale, params.dropout);  // mutate: DqUnscaled
  constexpr int last_columns = Config::head_dim - (parts_of_columns - 1) * columns;
  if (part % parts_of_columns + 1 < parts_of_columns) {
    store_rows<columns>(dq, scale, rows.from(0, first_column), first_row, row_end);
  } else if constexpr (last_columns > 0) {
    store_rows<last_columns>(dq, scale, rows.from(0, first_column), first_row, row_end);
  }
}

}  // namespace jit::backward_wgmma
