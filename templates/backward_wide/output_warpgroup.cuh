// A warpgroup that sums half of the columns of a gradient, in parts, over all tiles of weights.
#pragma once

#include "backward_wide/panels.cuh"
#include "backward_wide/traits.cuh"
#include "backward_wide/weights.cuh"
#include "base/prelude.cuh"
#include "base/rows.cuh"
#include "ptx/wgmma.cuh"
#include "steps/store_product.cuh"

namespace jit::backward_wide {

template <class Traits>
class OutputWarpgroup {
  using Config = typename Traits::Config;
  using Element = typename Config::Element;
  using Output = typename Traits::Output;
  static constexpr int parts = Traits::own_parts;
  // Products under which the next one begins: none where a warpgroup has one place for parts.
  static constexpr int in_flight = Config::parts > output_warpgroups ? 1 : 0;
  static constexpr int own = output_warpgroups;  ///< from one of its own places to the next

 public:
  /// `index` is that of the warpgroup among those that sum.
  JIT_DEVICE OutputWarpgroup(unsigned smem, int index)
      : index_(index), weights_(smem), pipeline_(smem, Traits::layout.parts) {
    for (int i = 0; i < index; ++i) pipeline_.advance();  // to the first part of its own
  }

  JIT_DEVICE void sum() {
#pragma unroll
    for (int i = 0; i < parts; ++i) sums_[i].clear();
    while (weights_.take()) multiply();
  }

  /// Writes the sums, times `factor`, to rows from `first_row` on, but none from `row_end` on.
  JIT_DEVICE void store(const DenseRows<Element>& target, float factor, int first_row, int row_end) const {
    using Layout = typename Output::Layout;
    const int warp_row = first_row + reread_thread_index() % warpgroup_size / warp_size * 16;
#pragma unroll
    for (int i = 0; i < parts; ++i) {
      const int column = Traits::first_column(i * output_warpgroups + index_);
#pragma unroll
      for (int r = 0; r < Output::rows; ++r) {
        const int row = Layout::row(warp_row + Layout::lane_row(lane_id()), 0, r);
        store_by_quads<Output::column_blocks>(
            target.at(row) + column, Traits::head_dim - column, row < row_end, [&](int n) {
              return pack<Element>(sums_[i].at(r, n, 0) * factor, sums_[i].at(r, n, 1) * factor);
            });
      }
    }
  }

 private:
  // Adds the products of a tile of weights, and is done with it.
  JIT_DEVICE void multiply() {
    using A = typename Traits::Weights;
    using B = typename Traits::Part;
    const unsigned a = lower_word(A::along_columns(uniform(weights_.tile()), 0, 0));
#pragma unroll
    for (int i = 0; i < parts; ++i) {
      pipeline_.consumer_wait();  // mutate: NoWaitForAPartOfAGradient
      const unsigned b = lower_word(B::along_rows(uniform(pipeline_.tile()), 0));
      wgmma_hold(sums_[i].registers[0]);
      wgmma_fence();
      if constexpr (Traits::gradient == Gradient::dv) {
        Config::template wgmma_sum_v<A, B>(sums_[i].registers[0], a, b);
      } else {
        Config::template wgmma_sum<A, B>(sums_[i].registers[0], a, b);
      }
      wgmma_commit_group();
      if (i >= in_flight) {
        wgmma_wait_group<in_flight>();
        pipeline_.consumer_release_before(in_flight * own);  // mutate: PartOfAGradientReleasedEarly
      }
#pragma unroll
      for (int other = 0; other < own; ++other) pipeline_.advance();
    }
    wgmma_wait_group<0>();
#pragma unroll
    for (int i = 0; i < parts; ++i) wgmma_hold(sums_[i].registers[0]);
    if constexpr (in_flight > 0) pipeline_.consumer_release_before(own);
    weights_.release();  // mutate: WeightsReleasedUnderTheirProduct
  }

  const int index_;
  WeightPipeline<Traits> weights_;
  PartPipeline<Traits> pipeline_;
  Output sums_[parts];
};

}  // namespace jit::backward_wide
