#include <array>
#include <cmath>

#include "generator/kernels/backward_dq_wide_wgmma/family.h"
#include "generator/kernels/backward_wide.h"
#include "templates/backward_wide/smem_layout.cuh"

namespace jit {
namespace {

constexpr std::array rows = {
    field<&BackwardDqWideWgmma::panels>("panels", "buffers for panels of scores' operands",
                                        {range(3, 16), Affects::buffers, 8}),
    // Each summing warpgroup has its own buffers.
    field<&BackwardDqWideWgmma::parts>(
        "parts", "buffers for parts of the sums' operand",
        {multiples(backward_wide::output_warpgroups, 16), Affects::buffers, 4}),
};
static_assert(rows.size() == member_count<BackwardDqWideWgmma>(), "each member has a row");

backward_wide::Stages stages(const BackwardDqWideWgmma& config) { return {config.panels, config.parts}; }

}  // namespace

std::span<const ConfigField<BackwardDqWideWgmma>> Family<BackwardDqWideWgmma>::fields() { return rows; }

std::string Family<BackwardDqWideWgmma>::rejection(const Case& problem, const BackwardDqWideWgmma&) {
  return backward_wide::rejection(problem, name);
}

Footprint Family<BackwardDqWideWgmma>::footprint(const AttentionSpec& spec,
                                                 const BackwardDqWideWgmma& config) {
  return backward_wide::footprint(spec, stages(config), true);
}

std::vector<BackwardDqWideWgmma> Family<BackwardDqWideWgmma>::space(const Case& problem) {
  std::vector<BackwardDqWideWgmma> configs;
  if (!rejection(problem, smallest).empty()) return configs;
  for (const int parts : {4, 2}) {
    for (int panels = 12; panels >= 4; --panels) configs.push_back({.panels = panels, .parts = parts});
  }
  return configs;
}

Program Family<BackwardDqWideWgmma>::program(const AttentionSpec& spec, const BackwardDqWideWgmma& config) {
  return backward_wide::program(
      {.folder = "backward_dq_wide_wgmma", .function = "attention_backward_dq", .gradients = "dQ"}, spec,
      stages(config), true, config_lines(fields(), config));
}

double Family<BackwardDqWideWgmma>::cycles(const Case& problem, const ProblemShape& shape,
                                           const BackwardDqWideWgmma& config) {
  const double tiles_q = std::ceil(static_cast<double>(shape.seqlen_q) / backward_wide::tile_rows);
  const double tiles_kv = std::ceil(static_cast<double>(shape.seqlen_kv) / backward_wide::tile_rows);
  return backward_wide::cycles(problem, stages(config),
                               tiles_q * static_cast<double>(shape.batch * shape.heads_q), tiles_kv,
                               2.0 * problem.spec.head_dim + problem.spec.value_head_dim());
}

}  // namespace jit
