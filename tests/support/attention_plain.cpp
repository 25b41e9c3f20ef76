#include "tests/support/attention_plain.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/support/float16.h"

namespace jit::reference {

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
      const float weight = round(scores[static_cast<std::size_t>(k)] / sum);
      if (weight == 0) continue;
      const float* v = in.v + std::ptrdiff_t{k} * problem.head_dim_v;
      for (std::size_t d = 0; d < output.size(); ++d) output[d] += weight * v[d];
    }
    for (std::size_t d = 0; d < output.size(); ++d) o[d] = round(output[d]);
    lse = largest + std::log(sum);
  });
}

}  // namespace jit::reference
