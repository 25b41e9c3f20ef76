// The fields of forward_mla_wgmma, its rules and its search grid.
#include <array>

#include <fmt/format.h>

#include "generator/functors/functor_node.h"
#include "generator/kernels/forward_mla_wgmma/family.h"
#include "generator/kernels/split_wgmma.h"
#include "generator/kernels/tma_rules.h"
#include "templates/base/element.cuh"
#include "templates/forward_mla_wgmma/smem_layout.cuh"

namespace jit {

using namespace forward_mla_wgmma;

namespace {

constexpr int threads = warpgroup_threads(consumers + 1);
// Loop counters, descriptors, softmax state; what masks and scores add. Counted on the assembler's reports.
constexpr int other_registers = 38;
constexpr int functor_registers = 8;
// Each consumer has whole panels of the values.
constexpr int value_columns = 64 * consumers;

constexpr std::array rows = {
    field<&ForwardMlaWgmma::tile_kv>("tile_kv", "keys per step", {multiples(16, 128), Affects::tiling, 32}),
    field<&ForwardMlaWgmma::stages>("stages", "buffers for tiles of keys",
                                    {range(2, 8), Affects::buffers, 3}),
    field<&ForwardMlaWgmma::copies>(
        "copies", "how tiles of keys are copied to shared memory",
        {.affects = Affects::tiling, .sample = static_cast<int>(Copies::cp_async)}),
};
static_assert(rows.size() == member_count<ForwardMlaWgmma>(), "each member has a row");

}  // namespace

std::span<const ConfigField<ForwardMlaWgmma>> Family<ForwardMlaWgmma>::fields() { return rows; }

bool Family<ForwardMlaWgmma>::can_read(const ProblemShape& shape, const ForwardMlaWgmma& config) {
  return config.copies != Copies::tma || shape.tma;
}

std::string Family<ForwardMlaWgmma>::rejection(const Case& problem, const ForwardMlaWgmma& config) {
  const auto& [spec, limits] = problem;
  if (!spec.values_in_keys) {
    return fmt::format("{} reads values that are the first columns of the keys; spec.values_in_keys is false",
                       name);
  }
  if (std::string reason = tma_rejection(problem, name); !reason.empty()) return reason;
  if (const int columns = spec.value_head_dim(); columns % value_columns != 0) {
    return fmt::format("{} shares out the columns of values: head_dim_v = {} must be a multiple of {}", name,
                       columns, value_columns);
  }
  if (config.copies == Copies::tma) {
    if (std::string reason = box_rejection(spec, config.tile_kv, true); !reason.empty()) return reason;
  }
  return span_rejection(spec, config.tile_kv);
}

RegisterShares forward_mla_wgmma::register_shares(const ForwardMlaWgmma& config) {
  // Warps that copy rows hold addresses of several, where consumers of small tiles leave them that many.
  if (config.copies == Copies::cp_async && config.tile_kv <= 32) return {.producer = 72, .consumer = 216};
  return shared_registers(consumers, 1);
}

Footprint Family<ForwardMlaWgmma>::footprint(const AttentionSpec& spec, const ForwardMlaWgmma& config) {
  const int scores = config.tile_kv / 2, p = config.tile_kv / 4;
  const int output = spec.value_head_dim() / consumers / 2;
  const int functors = functor_count(spec.mask) + functor_count(spec.score);
  return {.threads = threads,
          .smem_bytes = smem_layout({.head_dim = spec.head_dim,
                                     .tile_kv = config.tile_kv,
                                     .stages = config.stages,
                                     .has_spans = spec.split_keys != 0})
                            .total,
          .registers = scores + p + output + other_registers + functors * functor_registers,
          .register_cap = register_shares(config).consumer,
          .blocks_per_sm = 1,
          .register_slack = 0,
          .register_doubt = 8};
}

std::vector<ForwardMlaWgmma> Family<ForwardMlaWgmma>::space(const Case& problem) {
  std::vector<ForwardMlaWgmma> configs;
  if (!problem.spec.values_in_keys) return configs;
  for (const Copies copies : {Copies::tma, Copies::cp_async}) {
    for (const int tile_kv : {64, 32}) {
      for (const int stages : {3, 4})  // two were never faster
        configs.push_back({.tile_kv = tile_kv, .stages = stages, .copies = copies});
    }
  }
  return configs;
}

}  // namespace jit
