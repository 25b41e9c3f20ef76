// The fp64 gradients that backward kernels are measured against, beside differences of the loss that they are
// gradients of.
#include <cmath>
#include <numeric>
#include <random>

#include <gtest/gtest.h>

#include "tests/support/attention_gradients.h"
#include "tests/support/seed.h"

namespace jit::reference {
namespace {

GradientProblem random_problem(std::mt19937_64& random, int gqa_ratio) {
  GradientProblem problem{.batch = 2,
                          .heads_kv = 2,
                          .gqa_ratio = gqa_ratio,
                          .seqlen_q = 5,
                          .seqlen_kv = 7,
                          .head_dim = 4,
                          .head_dim_v = 3,
                          .softmax_scale = 0.7};
  std::normal_distribution<double> normal;
  const auto fill = [&](std::vector<double>& values, int seqlen, int heads, int columns) {
    values.resize(static_cast<std::size_t>(problem.batch * seqlen * heads * columns));
    for (double& value : values) value = normal(random);
  };
  fill(problem.q, problem.seqlen_q, problem.heads_q(), problem.head_dim);
  fill(problem.k, problem.seqlen_kv, problem.heads_kv, problem.head_dim);
  fill(problem.v, problem.seqlen_kv, problem.heads_kv, problem.head_dim_v);
  fill(problem.d_o, problem.seqlen_q, problem.heads_q(), problem.head_dim_v);
  return problem;
}

// do is the gradient of this loss with respect to o, and dlse that with respect to lse.
double loss(const GradientProblem& problem) {
  const ForwardResult result = attention_forward(problem);
  double sum = std::inner_product(result.o.begin(), result.o.end(), problem.d_o.begin(), 0.0);
  for (std::size_t i = 0; i < problem.d_lse.size(); ++i)
    sum += std::isinf(result.lse[i]) ? 0 : problem.d_lse[i] * result.lse[i];
  return sum;
}

void expect_differences(GradientProblem& problem) {
  const GradientResult result = attention_gradients(problem);
  const auto expect = [&](std::vector<double>& values, const std::vector<double>& gradient,
                          const char* name) {
    ASSERT_EQ(values.size(), gradient.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      constexpr double step = 1e-5;
      const double value = values[i];
      values[i] = value + step;
      const double above = loss(problem);
      values[i] = value - step;
      const double below = loss(problem);
      values[i] = value;
      EXPECT_NEAR(gradient[i], (above - below) / (2 * step), 1e-7) << name << " " << i;
    }
  };
  expect(problem.q, result.dq, "dq");
  expect(problem.k, result.dk, "dk");
  expect(problem.v, result.dv, "dv");
  expect(problem.sinks, result.d_sinks, "d_sinks");
}

TEST(AttentionGradients, AreThoseOfTheLoss) {
  std::mt19937_64 random(test_seed());
  for (const int gqa_ratio : {1, 3}) {
    GradientProblem problem = random_problem(random, gqa_ratio);
    expect_differences(problem);
    problem.keep = [](int, int h, int q, int k) {
      return q != 2 && (k <= q + 2 || k == h);
    };  // query 2 sees none
    expect_differences(problem);
    problem.score = [](double score, int, int h, int q, int k) {
      return 2 * std::tanh(score / 2) - 0.1 * (h + 1) * std::abs(q - k);
    };
    expect_differences(problem);
    std::normal_distribution<double> normal;
    for (int i = 0; i < problem.batch * problem.heads_q() * problem.seqlen_q; ++i)
      problem.d_lse.push_back(normal(random));
    expect_differences(problem);
    for (int h = 0; h < problem.heads_q(); ++h) problem.sinks.push_back(normal(random));
    expect_differences(problem);  // query 2 sees the sink alone
  }
}

TEST(AttentionGradients, OfScoresMakeThoseOfWhatTheyRead) {
  std::mt19937_64 random(test_seed());
  GradientProblem problem = random_problem(random, 2);
  std::vector<double> bias = {0.3, -0.7, 0.2, 1.1};
  problem.score = [&](double score, int, int h, int, int k) {
    return std::tanh(score + bias[static_cast<std::size_t>((h + k) % 4)]);
  };
  std::vector<double> gradient(bias.size(), 0);
  attention_gradients(problem, [&](int, int h, int, int k, double raw, double of_score) {
    const auto at = static_cast<std::size_t>((h + k) % 4);
    const double y = std::tanh(raw + bias[at]);
    gradient[at] += of_score * (1 - y * y);
  });
  for (std::size_t i = 0; i < bias.size(); ++i) {
    constexpr double step = 1e-5;
    bias[i] += step;
    const double above = loss(problem);
    bias[i] -= 2 * step;
    EXPECT_NEAR(gradient[i], (above - loss(problem)) / (2 * step), 1e-7) << i;
    bias[i] += step;
  }
}

TEST(AttentionGradients, RoundingLeavesThemNearby) {
  std::mt19937_64 random(test_seed());
  const GradientProblem problem = random_problem(random, 2);
  const GradientResult exact = attention_gradients(problem);
  for (const DType dtype : {DType::bf16, DType::fp16}) {
    const GradientResult plain = attention_gradients_plain(problem, dtype);
    for (const auto& [rounded, right] :
         {std::pair{&plain.dq, &exact.dq}, {&plain.dk, &exact.dk}, {&plain.dv, &exact.dv}}) {
      const double error = max_error(*rounded, *right);
      EXPECT_GT(error, 0);
      EXPECT_LT(error, dtype == DType::bf16 ? 0.1 : 0.02);
    }
  }
}

}  // namespace
}  // namespace jit::reference
