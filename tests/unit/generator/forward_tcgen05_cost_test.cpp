// The model of a step of forward_tcgen05 beside what FlashAttention-4 chose on silicon.
#include "generator/kernels/forward_tcgen05/step_clocks.h"

#include <gtest/gtest.h>

namespace jit::forward_tcgen05 {
namespace {

// The share of polynomials with the least bound; the smallest such one.
double best_share(Step step) {
  double best = 0;
  for (int percent = 0; percent <= 60; ++percent) {
    Step other = step, chosen = step;
    other.polynomials = percent / 100.0;
    chosen.polynomials = best;
    if (step_clocks(other).bound() < step_clocks(chosen).bound()) best = other.polynomials;
  }
  return best;
}

TEST(ForwardTcgen05Cost, ProductsExponentialsAndSharedMemoryAreInBalance) {
  const StepClocks clocks = step_clocks({});
  EXPECT_NEAR(clocks.products / clocks.exponentials, 1, 0.05);
  EXPECT_NEAR(clocks.products / clocks.shared_memory, 1, 0.05);
  EXPECT_LT(clocks.issue, 0.6 * clocks.products);
  EXPECT_EQ(step_clocks({.head_dim = 192}).bound(), step_clocks({.head_dim = 192}).shared_memory);
}

// One block of head_dim 256 would be bound by shared memory.
TEST(ForwardTcgen05Cost, PairsHalveWhatABlockReads) {
  const Step wide{.head_dim = 256, .head_dim_v = 256};
  Step pair = wide;
  pair.blocks = 2;
  EXPECT_EQ(step_clocks(wide).bound(), step_clocks(wide).shared_memory);
  EXPECT_EQ(step_clocks(pair).bound(), step_clocks(pair).products);
  EXPECT_EQ(step_clocks(pair).shared_memory, 1536);
}

// Its shares are 1/8 to 1/4 on sm_100, and none on sm_103.
TEST(ForwardTcgen05Cost, PolynomialsPayWhereExponentialsBind) {
  for (const Step& step : {Step{.head_dim = 64, .head_dim_v = 64}, Step{.element_bytes = 1}}) {
    EXPECT_EQ(step_clocks(step).bound(), step_clocks(step).exponentials);
    EXPECT_GE(best_share(step), 1 / 8.0);
    EXPECT_LE(best_share(step), 0.4);
    Step ours = step;
    ours.polynomials = polynomial_share(false);
    EXPECT_LT(step_clocks(ours).bound(), 0.9 * step_clocks(step).bound());
  }
  for (Step step : {Step{}, Step{.head_dim = 64, .head_dim_v = 64}, Step{.element_bytes = 1}}) {
    step.exponentials_a_clock = 32;
    EXPECT_EQ(best_share(step), polynomial_share(true)) << step.head_dim;
  }
}

}  // namespace
}  // namespace jit::forward_tcgen05
