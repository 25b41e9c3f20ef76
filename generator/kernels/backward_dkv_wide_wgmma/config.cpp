#include <array>
#include <cmath>

#include "generator/kernels/backward_dkv_wide_wgmma/family.h"
#include "generator/kernels/backward_wide.h"
#include "templates/backward_wide/smem_layout.cuh"

namespace jit {
namespace {

constexpr std::array rows = {
    field<&BackwardDkvWideWgmma::panels>("panels", "buffers for panels of scores' operands",
                                         {range(3, 16), Affects::buffers, 8}),
    // Each summing warpgroup has its own buffers.
    field<&BackwardDkvWideWgmma::parts>(
        "parts", "buffers for parts of the sums' operand",
        {multiples(backward_wide::output_warpgroups, 16), Affects::buffers, 2}),
};
static_assert(rows.size() == member_count<BackwardDkvWideWgmma>(), "each member has a row");

backward_wide::Stages stages(const BackwardDkvWideWgmma& config) { return {config.panels, config.parts}; }

}  // namespace

std::span<const ConfigField<BackwardDkvWideWgmma>> Family<BackwardDkvWideWgmma>::fields() { return rows; }

std::string Family<BackwardDkvWideWgmma>::rejection(const Case& problem, const BackwardDkvWideWgmma&) {
  return backward_wide::rejection(problem, name);
}

Footprint Family<BackwardDkvWideWgmma>::footprint(const AttentionSpec& spec,
                                                  const BackwardDkvWideWgmma& config) {
  return backward_wide::footprint(spec, stages(config), false);
}

std::vector<BackwardDkvWideWgmma> Family<BackwardDkvWideWgmma>::space(const Case& problem) {
  std::vector<BackwardDkvWideWgmma> configs;
  if (!rejection(problem, smallest).empty()) return configs;
  for (const int parts : {4, 2}) {
    for (int panels = 12; panels >= 4; --panels) configs.push_back({.panels = panels, .parts = parts});
  }
  return configs;
}

Program Family<BackwardDkvWideWgmma>::program(const AttentionSpec& spec, const BackwardDkvWideWgmma& config) {
  return backward_wide::program(
      {.folder = "backward_dkv_wide_wgmma", .function = "attention_backward_dkv", .gradients = "dK and dV"},
      spec, stages(config), false, config_lines(fields(), config));
}

double Family<BackwardDkvWideWgmma>::cycles(const Case& problem, const ProblemShape& shape,
                                            const BackwardDkvWideWgmma& config) {
  const double tiles_q = std::ceil(static_cast<double>(shape.seqlen_q) / backward_wide::tile_rows);
  const double tiles_kv = std::ceil(static_cast<double>(shape.seqlen_kv) / backward_wide::tile_rows);
  // Each block of a pair computes the products of both head dims.
  return backward_wide::cycles(
      problem, stages(config),
      2 * tiles_kv * static_cast<double>(shape.batch * shape.heads_q) / problem.spec.gqa_ratio,
      tiles_q * problem.spec.gqa_ratio,
      static_cast<double>(problem.spec.head_dim) + problem.spec.value_head_dim());
}

}  // namespace jit
