// The fields of forward_mla_wgmma, rules and search grid.
#include <array>

#include <fmt/format.h>

#include "generator/kernels/forward_mla_wgmma/family.h"
#include "generator/kernels/split_wgmma.h"
#include "generator/kernels/tma_rules.h"
#include "templates/base/element.cuh"
#include "templates/forward_mla_wgmma/smem_layout.cuh"

namespace jit {

using namespace forward_mla_wgmma;

namespace {

// Addresses, pipeline states, row factors: calibrated with ptxas.
constexpr int output_other_registers = 30;
// A pair of blocks has the heads of one query: all that see the rows of a list.
constexpr int pair_rows = 2 * rows_per_warpgroup;
// Each output warpgroup has whole panels of V.
constexpr int value_columns = value_panel * output_warpgroups;

constexpr std::array rows = {
    field<&ForwardMlaWgmma::stages>("stages", "tiles of keys that have room",
                                    {range(2, 8), Affects::buffers, 3}),
    field<&ForwardMlaWgmma::copies>(
        "copies", "how keys are copied to shared memory",
        {.affects = Affects::tiling, .sample = static_cast<int>(Copies::cp_async)}),
    field<&ForwardMlaWgmma::pair>("pair", "two blocks convert half of a list's rows each, for both",
                                  {.affects = Affects::tiling, .sample = 1}),
};
static_assert(rows.size() == member_count<ForwardMlaWgmma>(), "each member has a row");

// Whether both blocks of a pair find the same tiles of keys, and convert them. 16-bit rows, which nobody converts,
// are slower in pairs.
bool can_pair(const AttentionSpec& spec) {
  return has_lists(spec) && spec.list_queries == 1 && spec.gqa_ratio == pair_rows && has_narrow_keys(spec) &&
         spec.mask == mask::none();
}

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
  if (has_narrow_keys(spec) && spec.checked) {
    return fmt::format(
        "{} does not know which rows queries see where it converts them: checked must be false with "
        "kv_dtype {}",
        name, to_string(spec.key_dtype()));
  }
  if (config.copies == Copies::tma) {
    if (has_lists(spec))
      return fmt::format("keys of lists are copied row by row: copies = tma with list_block {}",
                         spec.list_block);
    if (std::string reason = box_rejection(read_spec(spec, config), tile_kv, true); !reason.empty())
      return reason;
  }
  if (config.pair && !can_pair(spec)) {
    return fmt::format(
        "{} has pairs of blocks for lists of one query over 8-bit latents, without mask, with {} query "
        "heads "
        "per KV head; pair must be false with gqa_ratio {}, kv_dtype {}",
        name, pair_rows, spec.gqa_ratio, to_string(spec.key_dtype()));
  }
  if (config.pair && config.copies == Copies::tma)
    return "pairs of blocks send rows that they convert: pair = true with copies = tma";
  return span_rejection(problem.spec, problem.limits.arch, tile_kv);
}

Footprint Family<ForwardMlaWgmma>::footprint(const AttentionSpec& spec, const ForwardMlaWgmma& config) {
  const int producers_and_scores = seesaws(spec, config) ? 1 : 2;  // warpgroups
  return {.threads = warpgroup_threads(producers_and_scores + output_warpgroups),
          .smem_bytes = smem_layout({.head_dim = spec.head_dim,
                                     .head_dim_v = spec.value_head_dim(),
                                     .stages = config.stages,
                                     .has_spans = spec.split_keys != 0,
                                     .copies_rows = config.copies == Copies::cp_async,
                                     .list_words = list_words(spec),
                                     .stored_row_bytes = stored_row_bytes(spec, config)})
                            .total,
          .registers = output_columns(spec.value_head_dim()) / 2 + output_other_registers,
          .register_cap = forward_mla_wgmma::register_shares(spec, config).consumer,
          .blocks_per_sm = 1,
          .register_slack = 0,
          // With spans ptxas needs more registers than setmaxnreg gives, and spills.
          .register_doubt = spec.split_keys != 0 ? 8 : 2};
}

std::vector<ForwardMlaWgmma> Family<ForwardMlaWgmma>::space(const Case& problem) {
  std::vector<ForwardMlaWgmma> configs;
  if (!problem.spec.values_in_keys) return configs;
  for (const Copies copies : {Copies::tma, Copies::cp_async}) {
    for (const int stages : {2, 3, 4}) configs.push_back({.stages = stages, .copies = copies});
    if (copies == Copies::cp_async && can_pair(problem.spec))
      configs.push_back({.stages = 2, .copies = copies, .pair = true});
  }
  return configs;
}

}  // namespace jit
