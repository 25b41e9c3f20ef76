// The mean of each row's scores under its probabilities, Σ P · score, in the epilogue of a forward kernel. Sums of
// exponents are relative to the row's maximum, as sums of exponentials are, so that large scores lose no precision.
#pragma once

#include "base/element.cuh"
#include "base/prelude.cuh"
#include "epilogue/lse.cuh"
#include "ptx/math.cuh"
#include "steps/softmax.cuh"

namespace jit {

/// Writes the means of a product's rows, as write_lse does. `keys_lse` is LSE before sinks are added.
template <class Config, class Product, class State, class Scale, class FindRows>
JIT_DEVICE void write_means(FindRows find_rows, int first_row, const State& state, const Scale& scale_log2,
                            const float (&keys_lse)[Product::rows], const float (&lse)[Product::rows]) {
  if constexpr (has_mean_score<Config>) {
    using Layout = typename Product::Layout;
    float means[Product::rows];
#pragma unroll
    for (int r = 0; r < Product::rows; ++r) {
      const auto sum_of_lanes = [](float x) {
        return Layout::reduce(x, [](float a, float b) { return a + b; });  // mutate: MeanOfOneLane
      };
      const float sum = sum_of_lanes(state.row_sum[r]), weighted = sum_of_lanes(state.weighted[r]);
      const float exponent =
          __fmaf_rn(finite_or_zero(state.row_max[r]), scale_of_row(scale_log2, r), weighted * rcp(sum));
      const float share =
          Config::sinks ? ex2((keys_lse[r] - lse[r]) * log2_e) : 1.0f;  // mutate: MeanBesideASink
      means[r] = sum == 0 ? 0 : exponent * ln_2 * share;
    }
    write_lse<Product>(find_rows, first_row, means);
  }
}

}  // namespace jit
