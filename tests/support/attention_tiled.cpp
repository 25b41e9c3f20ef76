#include "tests/support/attention_tiled.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "tests/support/float16.h"

namespace jit::reference {

Output attention_tiled(const Problem& problem, std::span<const Row> rows, const Tiling& tiling) {
  return detail::for_each_row(problem, rows, [&](const detail::RowInputs& in, double* o, double& lse) {
    const auto [b, h, q] = in.row;
    constexpr float infinity = std::numeric_limits<float>::infinity();
    constexpr auto log2_e = std::numbers::log2e_v<float>;
    constexpr float lazy_limit = 8;
    std::vector<float> p(static_cast<std::size_t>(tiling.tile_kv));
    std::vector<float> output(static_cast<std::size_t>(problem.head_dim_v), 0);
    float row_max = -infinity, row_sum = 0;
    for (int begin = 0; begin < problem.seqlen_kv; begin += tiling.tile_kv) {
      const int count = std::min(tiling.tile_kv, problem.seqlen_kv - begin);
      float tile_max = -infinity;
      for (int i = 0; i < count; ++i) {
        const int k = begin + i;
        float& score = p[static_cast<std::size_t>(i)];
        score = -infinity;
        if (problem.keep && !problem.keep(b, h, q, k)) continue;
        score = detail::dot<float>(in.q, in.k + std::ptrdiff_t{k} * problem.head_dim, problem.head_dim) *
                problem.softmax_scale;
        if (problem.score) score = static_cast<float>(problem.score(score, b, h, q, k));
        score *= log2_e;
        tile_max = std::max(tile_max, score);
      }
      if (tile_max == -infinity) continue;
      const float new_max = std::max(row_max, tile_max);
      if (!tiling.lazy_rescale || new_max - row_max > lazy_limit) {
        const float correction = std::exp2(row_max - new_max);
        row_max = new_max;
        row_sum *= correction;
        for (float& value : output) value *= correction;
      }
      for (int i = 0; i < count; ++i) {
        const float weight = std::exp2(p[static_cast<std::size_t>(i)] - row_max);
        row_sum += weight;
        const float rounded_weight = rounded(problem.dtype, weight);
        if (rounded_weight == 0) continue;
        const float* v = in.v + std::ptrdiff_t{begin + i} * problem.head_dim_v;
        for (std::size_t d = 0; d < output.size(); ++d) output[d] += rounded_weight * v[d];
      }
    }
    if (row_sum == 0) return;
    for (std::size_t d = 0; d < output.size(); ++d) o[d] = rounded(problem.dtype, output[d] / row_sum);
    lse = (row_max + std::log2(row_sum)) * std::numbers::ln2_v<float>;
  });
}

}  // namespace jit::reference
