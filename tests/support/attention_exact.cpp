#include "tests/support/attention_exact.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace jit::reference {

Output attention_exact(const Problem& problem, std::span<const Row> rows) {
  return detail::for_each_row(problem, rows, [&](const detail::RowInputs& in, double* o, double& lse) {
    const auto [b, h, q] = in.row;
    constexpr double infinity = std::numeric_limits<double>::infinity();
    std::vector<double> scores(static_cast<std::size_t>(problem.seqlen_kv), -infinity);
    double largest = -infinity;
    for (int k = 0; k < problem.seqlen_kv; ++k) {
      if (problem.keep && !problem.keep(b, h, q, k)) continue;
      double& score = scores[static_cast<std::size_t>(k)];
      score = detail::dot<double>(in.q, in.k + std::ptrdiff_t{k} * problem.head_dim, problem.head_dim) *
              problem.softmax_scale;
      if (problem.score) score = problem.score(score, b, h, q, k);
      largest = std::max(largest, score);
    }
    if (largest == -infinity) return;
    double sum = 0;
    for (int k = 0; k < problem.seqlen_kv; ++k) {
      const double weight = std::exp(scores[static_cast<std::size_t>(k)] - largest);
      if (weight == 0) continue;
      sum += weight;
      const float* v = in.v + std::ptrdiff_t{k} * problem.head_dim_v;
      for (int d = 0; d < problem.head_dim_v; ++d) o[d] += weight * v[d];
    }
    for (int d = 0; d < problem.head_dim_v; ++d) o[d] /= sum;
    lse = largest + std::log(sum);
  });
}

}  // namespace jit::reference
