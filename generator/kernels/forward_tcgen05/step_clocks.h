// Clocks of an SM's units for a step of forward_tcgen05, a tile of queries by one of keys.
#pragma once

#include <algorithm>

namespace jit::forward_tcgen05 {

/// Clocks of units that run concurrently.
struct StepClocks {
  double products = 0;
  double exponentials = 0;  ///< by the special function unit, without polynomials
  double shared_memory = 0;
  double issue = 0;  ///< of a scheduler, which has one warp per softmax warpgroup

  double bound() const { return std::max({products, exponentials, shared_memory, issue}); }
};

struct Step {
  int head_dim = 128, head_dim_v = 128;
  int element_bytes = 2;
  int blocks = 1;                    ///< 2: a pair of blocks, each loads half of K and V
  double polynomials = 0;            ///< share of the exponentials
  double exponentials_a_clock = 16;  ///< 32 on sm_103
};

inline constexpr int step_rows = 128, step_keys = 128;

/// The share of exponentials that softmax.cuh computes by polynomials.
constexpr double polynomial_share(bool has_fast_exponentials) { return has_fast_exponentials ? 0 : 0.125; }

constexpr StepClocks step_clocks(const Step& step) {
  // Rates of an SM per clock. S = Q Kᵀ reads both operands from shared memory, O += P V only V. TMA writes K
  // and V once for two tiles of queries, half of them per block of a pair.
  constexpr double product_bytes = 8192;  // 16-bit multiply-adds, times bytes per element
  constexpr double shared_bytes = 128, rows_of_tile = 2 * step_rows;
  constexpr double plain_issue = 470, issue_of_polynomial = 4;  // SASS per warp step; per polynomial
  constexpr double scores = step_rows * step_keys;
  const double k = step_keys * step.head_dim * step.element_bytes;
  const double v = step_keys * step.head_dim_v * step.element_bytes;
  const double q = step_rows * step.head_dim * step.element_bytes;
  return {.products = scores * (step.head_dim + step.head_dim_v) * step.element_bytes / product_bytes,
          .exponentials = scores * (1 - step.polynomials) / step.exponentials_a_clock,
          .shared_memory = (q + (k + v) / step.blocks + (k + v) * step_rows / rows_of_tile) / shared_bytes,
          .issue = plain_issue + issue_of_polynomial * step_keys * step.polynomials};
}

}  // namespace jit::forward_tcgen05
