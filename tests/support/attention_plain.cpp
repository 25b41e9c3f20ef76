#include "tests/support/attention_plain.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/support/float16.h"

namespace jit::reference {
namespace {

// A number from 0 to 448 as an e4m3 number, which has 3 bits behind the point, and below 2^-6 no more than 2^-9.
float e4m3(float value) {
  const int exponent = std::max(std::ilogb(std::max(value, 0x1p-9f)), -6);
  return std::ldexp(std::nearbyint(std::ldexp(value, 3 - exponent)), exponent - 3);
}

}  // namespace

Output attention_plain(const Problem& problem, std::span<const Row> rows) {
  const auto round = [&](double value) { return rounded(problem.dtype, static_cast<float>(value)); };
  return detail::for_each_row(problem, rows, [&](const detail::RowInputs& in, double* o, double& lse) {
    const auto [b, h, q] = in.row;
    constexpr float infinity = std::numeric_limits<float>::infinity();
    std::vector<float> scores(static_cast<std::size_t>(problem.seqlen_kv), -infinity);
    float largest = -infinity;
    for (int k = 0; k < problem.seqlen_kv; ++k) {
      if (problem.keep && !problem.keep(b, h, q, k)) continue;
      float& score = scores[static_cast<std::size_t>(k)];
      score = round(detail::dot<float>(in.q, in.k + std::ptrdiff_t{k} * problem.head_dim, problem.head_dim));
      score = round(score * problem.softmax_scale);
      if (problem.score) score = round(problem.score(score, b, h, q, k));
      largest = std::max(largest, score);
    }
    if (largest == -infinity) return;
    float sum = 0;
    for (float& score : scores) {
      score = std::exp(score - largest);
      sum += score;
    }
    std::vector<float> output(static_cast<std::size_t>(problem.head_dim_v), 0);
    for (int k = 0; k < problem.seqlen_kv; ++k) {
      const float score = scores[static_cast<std::size_t>(k)];
      const float weight = problem.fp8_weights ? e4m3(score * 256) / 256 / sum : round(score / sum);
      if (weight == 0) continue;
      const float* v = in.v + std::ptrdiff_t{k} * problem.head_dim_v;
      for (std::size_t d = 0; d < output.size(); ++d) output[d] += weight * v[d];
    }
    for (std::size_t d = 0; d < output.size(); ++d) o[d] = round(output[d]);
    lse = largest + std::log(sum);
  });
}

}  // namespace jit::reference
