// The field of forward_tcgen05, rules and search grid.
#include <array>

#include <fmt/format.h>
#include <jit/dtype.h>
#include <jit/spec_table.h>

#include "generator/functors/functor_node.h"
#include "generator/kernels/forward_tcgen05/family.h"
#include "generator/kernels/tma_rules.h"
#include "templates/forward_tcgen05/smem_layout.cuh"

namespace jit {

using namespace forward_tcgen05;

namespace {

// Registers of a row's scores, half of them as P, and of addresses.
constexpr int softmax_needs = tile_kv + 40;

constexpr std::array rows = {
    field<&ForwardTcgen05::stages>("stages", "buffers for tiles of K, and for tiles of V",
                                   {range(1, 4), Affects::buffers, 1}),
};
static_assert(rows.size() == member_count<ForwardTcgen05>(), "each member has a row");

int smem_bytes(const AttentionSpec& spec, int stages) {
  return smem_layout({.head_dim = spec.head_dim,
                      .head_dim_v = spec.value_head_dim(),
                      .stages = stages,
                      .has_lengths = !is_plain(spec),
                      .element_bytes = size_of(spec.dtype),
                      .key_scales = has_key_scales(spec)})
      .total;
}

}  // namespace

std::span<const ConfigField<ForwardTcgen05>> Family<ForwardTcgen05>::fields() { return rows; }

std::string Family<ForwardTcgen05>::rejection(const Case& problem, const ForwardTcgen05&) {
  const auto& [spec, limits] = problem;
  if (std::string reason = wide_output_rejection(spec, name); !reason.empty()) return reason;
  if (!has_fp8_queries(spec)) {
    if (std::string reason = kv_dtype_rejection(spec, name); !reason.empty()) return reason;
  } else if (spec.v_descale_per != ScaleKind::head || spec.v_mean || spec.lse_shift) {
    return fmt::format(
        "{} has one scale of v for each head, and neither its mean nor shifts of LSE; v_descale_per = {}, "
        "v_mean = {}, lse_shift = {}",
        name, to_string(spec.v_descale_per), spec.v_mean, spec.lse_shift);
  }
  if (std::string reason = tma_rejection(problem, name); !reason.empty()) return reason;
  if (spec.values_in_keys)
    return fmt::format("{} reads values that are a tensor of their own; spec.values_in_keys is true", name);
  if (spec.split_keys != 0)
    return fmt::format("{} sums keys without a break, not in spans of split_keys = {}", name,
                       spec.split_keys);
  return box_rejection(spec, blocks_of(spec).keys(), false);
}

Footprint Family<ForwardTcgen05>::footprint(const AttentionSpec& spec, const ForwardTcgen05& config) {
  const Blocks blocks = blocks_of(spec);
  return {.threads = blocks.threads(),
          .smem_bytes = smem_bytes(spec, config.stages),
          .registers = softmax_needs,
          .register_cap = registers_of(spec).softmax,
          .blocks_per_sm = 1,
          .register_slack = 0,
          .register_doubt = 8};
}

std::vector<ForwardTcgen05> Family<ForwardTcgen05>::space(const Case& problem) {
  // The most stages that fit; fewer are not measured.
  ForwardTcgen05 config{.stages = 4};
  while (config.stages > 1 && smem_bytes(problem.spec, config.stages) > problem.limits.smem_per_block)
    --config.stages;
  return {config};
}

}  // namespace jit
