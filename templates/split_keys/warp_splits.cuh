// Merges the partial results of the warps of a block, each over some keys.
#pragma once

#include "base/prelude.cuh"
#include "ptx/math.cuh"
#include "split_keys/block_results.cuh"
#include "split_keys/result_pieces.cuh"
#include "split_keys/transposed_products.cuh"
#include "split_keys/warp_layout.cuh"
#include "steps/softmax.cuh"

namespace jit {

/// The results of the warps that share the rows of a tile, in the shared memory of a stage.
/// A Traits is that of a kernel family, as KvProducts wants it, with the number of `warps` and `tile_rows`.
template <class Traits>
class WarpSplits {
  using Config = typename Traits::Config;
  static constexpr int row_floats = Traits::column_warps * Traits::warp_columns + result_padding;
  static constexpr int mean_column = row_floats - result_padding;
  static_assert(result_padding >= piece_columns, "a piece lies behind the columns of O");
  static constexpr int rows = Traits::warps / Traits::column_warps * Traits::warp_rows;

 public:
  JIT_DEVICE explicit WarpSplits(unsigned char* stage) : o_(reinterpret_cast<float*>(stage)) {}

  /// Writes this warp's partial result. `scale_log2` turns its maxima into exponents of 2.
  template <class State>
  JIT_DEVICE void put(const typename Traits::Output& output, const State& state, float scale_log2) const {
    using Layout = typename Traits::Output::Layout;
    // Kernels of few rows have no registers for an address that they need once a split.
    constexpr bool rereads = Traits::warp_rows < rows_per_warp;
    const int lane = rereads ? reread_lane() : lane_id();
    const int warp = rereads ? reread_thread_index() / warp_size : Traits::group_warp();
    const int first_row = warp * Traits::warp_rows;
    const int first_column = Traits::first_column();
    Traits::Output::for_each_row(first_row + Layout::lane_row(lane), [&](int r, int row) {
      SplitProducts<Traits>::for_each_pair(output, r, [&](int column, float2 pair) {
        *reinterpret_cast<float2*>(o_ + row * row_floats + first_column + column) = pair;
      });
      const float sum = Layout::reduce(state.row_sum[r], [](float x, float y) { return x + y; });
      if (first_column == 0 && Layout::is_row_leader(lane)) {
        states()[row] = row_state(state.row_max[r], scale_log2, sum);
      }
      if constexpr (State::keeps_mean) {
        const float weighted = Layout::reduce(state.weighted[r], [](float x, float y) { return x + y; });
        // Behind O's columns are some that keep rows apart.
        if (first_column == 0 && Layout::is_row_leader(lane))
          *reinterpret_cast<float4*>(o_ + row * row_floats + mean_column) =
              make_float4(sum_of_scores(states()[row], weighted), 0, 0, 0);
      }
    });
  }

  static constexpr int count = rows / Traits::tile_rows;
  JIT_DEVICE RowState state(int i, int row) const { return states()[place(i, row)]; }
  JIT_DEVICE float4 values(int i, int row, int column) const {
    if constexpr (has_mean_score<Config>) {
      if (column == Config::head_dim_v) column = mean_column;
    }
    return *reinterpret_cast<const float4*>(o_ + place(i, row) * row_floats + column);
  }

 private:
  // Warps that share rows lie Config::row_warps apart.
  static JIT_DEVICE int place(int i, int row) { return i * Traits::tile_rows + row; }
  JIT_DEVICE RowState* states() const { return reinterpret_cast<RowState*>(o_ + rows * row_floats); }

  float* o_;
};

/// Merges one piece of `results.count` partial results, in order.
template <class Results>
JIT_DEVICE RowPiece merge_piece(const Results& results, int row, int column) {
  RowPiece merged = piece_without_keys();
#pragma unroll
  for (int i = 0; i < results.count; ++i)
    merged.state.max = fmaxf(merged.state.max, results.state(i, row).max);
#pragma unroll
  for (int i = 0; i < results.count; ++i) {
    const RowState state = results.state(i, row);
    const float weight = weight_of(state, merged.state.max);
    merged.state.sum = __fmaf_rn(weight, state.sum, merged.state.sum);
    add_weighted(merged.values, weight, results.values(i, row, column));
  }
  return merged;
}

}  // namespace jit
