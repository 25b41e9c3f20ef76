// The references themselves: the yardstick must be straight.
#include <cmath>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/attention_exact.h"
#include "tests/support/attention_plain.h"
#include "tests/support/attention_tiled.h"
#include "tests/support/float16.h"
#include "tests/support/host_functors.h"
#include "tests/support/seed.h"

namespace jit::reference {
namespace {

TEST(Float16, RoundsToNearestAndBack) {
  for (const DType dtype : {DType::bf16, DType::fp16}) {
    for (int bits = 0; bits < 0x10000; ++bits) {
      const auto half = static_cast<std::uint16_t>(bits);
      const float value = to_float(dtype, half);
      if (std::isnan(value)) {
        EXPECT_TRUE(std::isnan(rounded(dtype, value)));
        continue;
      }
      ASSERT_EQ(from_float(dtype, value), half) << to_string(dtype);
      // Halfway to the next larger magnitude: ties go to the even one.
      const auto next = static_cast<std::uint16_t>(bits + 1);
      const float above = to_float(dtype, next);
      if (!std::isfinite(value) || !std::isfinite(above)) continue;
      const float middle = static_cast<float>((double{value} + above) / 2);
      if (middle == value || middle == above) continue;
      ASSERT_EQ(from_float(dtype, middle), bits % 2 == 0 ? half : next) << to_string(dtype) << " " << bits;
      ASSERT_EQ(from_float(dtype, std::nextafter(middle, value)), half) << to_string(dtype) << " " << bits;
    }
  }
  EXPECT_EQ(to_float(DType::bf16, 0x3f80), 1.0f);
  EXPECT_EQ(to_float(DType::fp16, 0x3c00), 1.0f);
  EXPECT_EQ(from_float(DType::fp16, 65520.0f), 0x7c00);
}

/// Dense random tensors and the problem over them.
struct Dense {
  Problem problem;
  std::vector<std::uint16_t> q, k, v;

  Dense(const Problem& wanted, Random& random, float amplitude = 1) : problem(wanted) {
    std::normal_distribution<float> normal(0, amplitude);
    const auto fill = [&](std::vector<std::uint16_t>& bits, int seqlen, int heads, int head_dim) {
      bits.resize(static_cast<std::size_t>(problem.batch) *
                  static_cast<std::size_t>(seqlen * heads * head_dim));
      for (std::uint16_t& x : bits) x = from_float(problem.dtype, normal(random));
      return HostTensor{bits.data(), std::int64_t{seqlen} * heads * head_dim, std::int64_t{heads} * head_dim,
                        head_dim};
    };
    const int heads_kv = problem.heads_q / problem.gqa_ratio;
    problem.q = fill(q, problem.seqlen_q, problem.heads_q, problem.head_dim);
    problem.k = fill(k, problem.seqlen_kv, heads_kv, problem.head_dim);
    problem.v = fill(v, problem.seqlen_kv, heads_kv, problem.head_dim_v);
  }
};

TEST(AttentionExact, IsTheMeanForEqualScores) {
  Random random(test_seed());
  Dense dense({.heads_q = 4, .gqa_ratio = 2, .seqlen_q = 3, .seqlen_kv = 5, .head_dim = 8, .head_dim_v = 16},
              random);
  std::fill(dense.q.begin(), dense.q.end(), std::uint16_t{0});
  const std::vector<Row> rows = all_rows(dense.problem);
  const Output output = attention_exact(dense.problem, rows);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_DOUBLE_EQ(output.lse[i], std::log(5.0));
    for (int d = 0; d < 16; ++d) {
      double mean = 0;
      for (int k = 0; k < 5; ++k)
        mean += to_float(DType::bf16, dense.problem.v.row(0, k, rows[i].h / 2)[d]) / 5.0;
      EXPECT_NEAR(output.o[i * 16 + static_cast<std::size_t>(d)], mean, 1e-12);
    }
  }
}

TEST(AttentionExact, MatchesAHandMadeSoftmax) {
  Random random(test_seed());
  Dense dense({.seqlen_q = 1, .seqlen_kv = 2, .head_dim = 8, .head_dim_v = 8, .softmax_scale = 0.5f}, random);
  dense.problem.score = [](double score, int, int, int, int k) { return score + k; };
  double scores[2] = {0, 1};
  for (int k = 0; k < 2; ++k) {
    for (std::size_t d = 0; d < 8; ++d)
      scores[k] += 0.5 * to_float(DType::bf16, dense.q[d]) *
                   to_float(DType::bf16, dense.k[8 * static_cast<std::size_t>(k) + d]);
  }
  const double sum = std::exp(scores[0]) + std::exp(scores[1]);
  const Output output = attention_exact(dense.problem, all_rows(dense.problem));
  EXPECT_NEAR(output.lse[0], std::log(sum), 1e-12);
  for (std::size_t d = 0; d < 8; ++d) {
    EXPECT_NEAR(output.o[d],
                (std::exp(scores[0]) * to_float(DType::bf16, dense.v[d]) +
                 std::exp(scores[1]) * to_float(DType::bf16, dense.v[8 + d])) /
                    sum,
                1e-12);
  }
}

TEST(AttentionReferences, ARowWithoutKeysIsZero) {
  Random random(test_seed());
  Dense dense({.seqlen_q = 4, .seqlen_kv = 9, .head_dim = 8, .head_dim_v = 8}, random);
  dense.problem.keep = [](int, int, int q, int) { return q != 2; };
  const std::vector<Row> rows = all_rows(dense.problem);
  for (const Output& output : {attention_exact(dense.problem, rows), attention_plain(dense.problem, rows),
                               attention_tiled(dense.problem, rows, {.tile_kv = 4})}) {
    for (std::size_t i = 0; i < rows.size(); ++i) {
      EXPECT_EQ(std::isinf(output.lse[i]), i == 2);
      for (std::size_t d = 0; d < 8; ++d) EXPECT_EQ(output.o[i * 8 + d] == 0, i == 2);
    }
  }
}

// The algorithm of the kernels keeps the accuracy rule; wrong results of the size of one lost key do not.
TEST(AttentionTiled, KeepsTheAccuracyRule) {
  Random random(test_seed());
  double worst = 0;
  for (int i = 0; i < 150; ++i) {
    Problem wanted{.dtype = i % 2 == 0 ? DType::bf16 : DType::fp16,
                   .batch = draw(random, 1, 2),
                   .heads_q = draw(random, 1, 2),
                   .seqlen_q = draw(random, 1, 40),
                   .seqlen_kv = draw(random, 1, i % 4 == 0 ? 4 : 300),
                   .head_dim = 8 * draw(random, 1, 12),
                   .head_dim_v = 8 * draw(random, 1, 12)};
    wanted.softmax_scale = 1 / std::sqrt(static_cast<float>(wanted.head_dim));
    AttentionSpec spec{.mask = random_mask(random), .score = random_score(random)};
    const auto functors = std::make_shared<const FunctorProblem>(random_functor_problem(
        spec, wanted.batch, wanted.heads_q, wanted.seqlen_q, wanted.seqlen_kv, random));
    wanted.keep = host_mask(spec.mask, functors);
    wanted.score = host_score(spec.score, functors);
    const Dense dense(wanted, random, std::vector{0.3f, 1.0f, 3.0f}[random() % 3]);
    const std::vector<Row> rows = all_rows(dense.problem);
    const Output exact = attention_exact(dense.problem, rows), plain = attention_plain(dense.problem, rows);
    const Output tiled = attention_tiled(
        dense.problem, rows, {.tile_kv = 16 * draw(random, 1, 8), .lazy_rescale = draw(random, 0, 1) == 0});
    const double ratio = max_error(tiled.o, exact.o) / error_limit(wanted.dtype, plain.o, exact.o);
    worst = std::max(worst, ratio);
    EXPECT_LE(ratio, 1) << to_string(spec) << ", case " << i;
    EXPECT_LE(max_error(tiled.lse, exact.lse), 5e-5 * 50) << to_string(spec) << ", case " << i;
  }
  RecordProperty("worst_ratio", std::to_string(worst));
  EXPECT_GT(worst, 0.2) << "the limit is too loose to find anything";
}

TEST(AttentionTiled, ALostKeyBreaksTheRule) {
  Random random(test_seed());
  Dense dense({.seqlen_q = 16, .seqlen_kv = 256, .head_dim = 64, .head_dim_v = 64, .softmax_scale = 0.125f},
              random);
  const std::vector<Row> rows = all_rows(dense.problem);
  const Output exact = attention_exact(dense.problem, rows), plain = attention_plain(dense.problem, rows);
  dense.problem.keep = [](int, int, int, int k) { return k != 255; };
  const Output wrong = attention_tiled(dense.problem, rows, {});
  EXPECT_GT(max_error(wrong.o, exact.o), error_limit(DType::bf16, plain.o, exact.o));
}

TEST(SampleRows, CoversTheEndsAndStaysInside) {
  const Problem problem{.batch = 3, .heads_q = 5, .seqlen_q = 1000};
  const std::vector<Row> rows = sample_rows(problem, 100, test_seed());
  EXPECT_EQ(rows.size(), 100u);
  bool first = false, last = false;
  for (const auto& [b, h, q] : rows) {
    EXPECT_TRUE(b >= 0 && b < 3 && h >= 0 && h < 5 && q >= 0 && q < 1000);
    first |= b == 0 && h == 0 && q == 0;
    last |= b == 2 && h == 4 && q == 999;
  }
  EXPECT_TRUE(first && last);
  EXPECT_EQ(sample_rows({.batch = 2, .seqlen_q = 3}, 100, 1).size(), 6u);
}

TEST(MaxError, CountsNanAndInfinity) {
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(max_error(std::vector{1.0, -infinity}, std::vector{1.5, -infinity}), 0.5);
  EXPECT_EQ(max_error(std::vector{double{NAN}}, std::vector{1.0}), infinity);
  EXPECT_EQ(max_error(std::vector{1.0}, std::vector{-infinity}), infinity);
  EXPECT_EQ(max_error(std::vector{1.0, 2.0}, std::vector{1.0}), infinity);
}

}  // namespace
}  // namespace jit::reference
