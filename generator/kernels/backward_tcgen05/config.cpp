// The fields of backward_tcgen05, rules and search grid.
#include <array>

#include <jit/spec_table.h>

#include "generator/functors/functor_node.h"
#include "generator/kernels/backward_tcgen05/family.h"
#include "generator/kernels/tma_rules.h"
#include "templates/backward_tcgen05/smem_layout.cuh"

namespace jit {

using namespace backward_tcgen05;

namespace {

constexpr int threads = 512;
// Registers of W and dP of a thread's queries, half of them rounded, and of addresses.
constexpr int score_needs = tile_q / 2 + 32 + 16 + 40;

constexpr std::array rows = {
    field<&BackwardTcgen05::stages>("stages", "buffers for tiles of queries",
                                    {multiples(2, 4), Affects::buffers, 4}),
    field<&BackwardTcgen05::deterministic>("deterministic", "blocks take turns when they add to dQ",
                                           {.affects = Affects::buffers}),
};
static_assert(rows.size() == member_count<BackwardTcgen05>(), "each member has a row");

int smem_bytes(const AttentionSpec& spec, const BackwardTcgen05& config) {
  return smem_layout({.head_dim = spec.head_dim,
                      .head_dim_v = spec.value_head_dim(),
                      .stages = config.stages,
                      .deterministic = config.deterministic})
      .total;
}

}  // namespace

std::span<const ConfigField<BackwardTcgen05>> Family<BackwardTcgen05>::fields() { return rows; }

std::string Family<BackwardTcgen05>::rejection(const Case& problem, const BackwardTcgen05&) {
  if (std::string reason = gradient_rejection(problem.spec, name); !reason.empty()) return reason;
  if (std::string reason = wide_output_rejection(problem.spec, name); !reason.empty()) return reason;
  if (std::string reason = dropout_rejection(problem.spec, name); !reason.empty()) return reason;
  return tma_rejection(problem, name);
}

Footprint Family<BackwardTcgen05>::footprint(const AttentionSpec& spec, const BackwardTcgen05& config) {
  return {.threads = threads,
          .smem_bytes = smem_bytes(spec, config),
          .registers = score_needs,
          .register_cap = score_registers,
          .blocks_per_sm = 1,
          .register_slack = 0,
          .register_doubt = 8};
}

std::vector<BackwardTcgen05> Family<BackwardTcgen05>::space(const Case& problem) {
  // The most buffers that fit; fewer are not measured.
  std::vector<BackwardTcgen05> configs;
  for (const bool deterministic : {false, true}) {
    BackwardTcgen05 config{.stages = 4, .deterministic = deterministic};
    if (smem_bytes(problem.spec, config) > problem.limits.smem_per_block) config.stages = 2;
    configs.push_back(config);
  }
  return configs;
}

}  // namespace jit
