#include "generator/pack/pack_shapes.h"

#include <algorithm>
#include <cstdint>

#include "generator/functors/score_mask.h"

namespace jit {

std::vector<std::int64_t> powers_of_two(std::int64_t most) {
  std::vector<std::int64_t> powers = {1};
  while (powers.back() < most) powers.push_back(2 * powers.back());
  return powers;
}

namespace {

// Powers of two, and three equidistant numbers between consecutive ones.
std::vector<std::int64_t> quarter_steps(std::int64_t most) {
  std::vector<std::int64_t> steps;
  for (const std::int64_t power : powers_of_two(most)) {
    if (power >= 8) steps.push_back(power / 8 * 5);
    if (power >= 4) steps.push_back(power / 4 * 3);
    if (power >= 8) steps.push_back(power / 8 * 7);
    steps.push_back(power);
  }
  return steps;
}

}  // namespace

std::vector<ProblemShape> pack_shapes(const AttentionSpec& spec, const PackSizes& sizes) {
  const bool crosses = !drops_keys(spec);
  std::vector<ProblemShape> shapes;
  const auto add = [&](const std::vector<std::int64_t>& rows, const std::vector<std::int64_t>& lengths) {
    for (const std::int64_t row : rows) {
      for (const std::int64_t seqlen_q : lengths) {
        for (const std::int64_t seqlen_kv : lengths) {
          if (seqlen_q > seqlen_kv && !crosses) continue;
          shapes.push_back({.heads_q = row, .seqlen_q = seqlen_q, .seqlen_kv = seqlen_kv});
        }
      }
    }
  };
  add(powers_of_two(std::int64_t{sizes.heads_q} * sizes.max_batch), powers_of_two(sizes.max_seqlen));
  std::vector<std::int64_t> whole_models;
  for (const std::int64_t batch : quarter_steps(sizes.max_batch))
    whole_models.push_back(sizes.heads_q * batch);
  add(whole_models, quarter_steps(sizes.max_seqlen));
  return shapes;
}

}  // namespace jit
