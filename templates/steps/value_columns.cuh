// Column factors of O and means that are added to it, for 8-bit values with a scale per column or a subtracted mean: O
// = c · (P V) / Σ P + mean, which is exact because rows of P sum to 1. In fp32, before O is rounded.
#pragma once

#include "base/element.cuh"
#include "base/params.cuh"
#include "base/prelude.cuh"
#include "steps/softmax.cuh"
#include "tiles/accumulator.cuh"

namespace jit {

/// The share of the keys in each row sum; a sink has the rest.
template <class Config, int rows, bool is_used = has_value_means<Config>&& Config::sinks>
class SeenShares {
 public:
  JIT_DEVICE void add_sink(float sink, float (&inverse)[rows], float (&lse)[rows]) {
    jit::add_sink(sink, inverse, lse);
  }
  JIT_DEVICE float operator[](int) const { return 1; }
};
template <class Config, int rows>
class SeenShares<Config, rows, true> {
 public:
  JIT_DEVICE void add_sink(float sink, float (&inverse)[rows], float (&lse)[rows]) {
    jit::add_sink(sink, inverse, lse, shares_);
  }
  JIT_DEVICE float operator[](int r) const { return shares_[r]; }

 private:
  float shares_[rows];
};

/// Finishes normalized rows of O: multiplies columns by the scale of values and adds their mean. Works column block by
/// column block, just before each is stored: otherwise ptxas would load the scales of all columns first, and spill.
template <class Config, class Output, bool is_used = finishes_columns<Config>>
class ValueColumns {
 public:
  JIT_DEVICE ValueColumns(const DescaleParams&, int, int, const SeenShares<Config, Output::rows>&) {}
  JIT_DEVICE void finish(Output&, int, int) const {}
};
template <class Config, class Output>
class ValueColumns<Config, Output, true> {
  using Layout = typename Output::Layout;

 public:
  /// Columns of batch entry b and KV head h, where `slice` is b · heads_kv + h.
  JIT_DEVICE ValueColumns(const DescaleParams& descale, int slice, int heads_kv,
                          const SeenShares<Config, Output::rows>& shares)
      : shares_(shares) {
    const int batch = slice / heads_kv, kv_head = slice - batch * heads_kv;  // mutate: MeanOfAnotherHead
    const int first = Layout::lane_column(lane_id());
    const auto of_head = [&](const float* of_all, const TensorStrides& strides) {
      return of_all + batch * strides.batch + kv_head * strides.head;
    };
    scales_ = of_head(descale.v, descale.v_strides) + first;
    means_ = of_head(descale.v_mean, descale.v_mean_strides) + first;
    if (!has_channel_scales<Config> && descale.v != nullptr) scale_ = *(scales_ - first);
  }

  /// The lane's pair of its row `r` in column block `n`. Rows without keys are still to become 0 (`keep_if_has_keys`).
  JIT_DEVICE void finish(Output& output, int r, int n) const {
#pragma unroll
    for (int i = 0; i < Output::pair; ++i) {
      const int column = Layout::column(0, n, i);
      if (column >= Config::head_dim_v) continue;  // head dims are multiples of a block's columns
      // mutate: ScaleOfTheNextBlock
      const float scale = has_channel_scales<Config> ? scales_[column] : scale_;
      float& x = output.at(r, n, i);
      x = has_value_means<Config> ? __fmaf_rn(x, scale, means_[column] * shares_[r]) : x * scale;
    }
  }

 private:
  const SeenShares<Config, Output::rows>& shares_;
  const float* scales_;  // from the lane's first column on
  const float* means_;
  float scale_ = 1;
};

}  // namespace jit
