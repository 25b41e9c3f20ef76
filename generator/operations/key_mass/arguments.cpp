#include "generator/operations/key_mass/arguments.h"

#include <cstdint>
#include <limits>

#include <fmt/format.h>

#include "generator/launch/sequence_grid.h"
#include "generator/launch/tensor_maps.h"
#include "generator/operations/key_mass/program.h"
#include "generator/operations/operands.h"
#include "generator/operations/scores.h"
#include "generator/problem/argument_table.h"
#include "generator/problem/tma_operands.h"
#include "generator/tensors/tensor_checks.h"

namespace jit {

unsigned fill_params(const KeyMassSpec& spec, const KeyMassArguments& arguments, KeyMassParams& params) {
  const AttentionSpec scores = scores_of(spec.attention);
  if (!arguments.lse.is_present()) refuse("lse", "is missing; give the LSE that attention wrote");
  if (arguments.seqused_k.is_present() && !has_pages(scores))
    refuse("seqused_k", "was given without page_table; cut k, or pass cu_seqlens_k");
  const ScoreOperands operands{arguments.q,
                               arguments.k,
                               arguments.lse,
                               arguments.cu_seqlens_q,
                               arguments.cu_seqlens_k,
                               arguments.page_table,
                               arguments.seqused_k,
                               arguments.tensors};
  fill_params_of_scores(scores, operands, params.attention);
  AttentionParams& attention = params.attention;
  attention.o = nullptr;
  if (spec.per_query_head) attention.heads_kv = attention.heads_q;
  const bool is_varlen = has_varlen_kv(scores);
  CallSizes sizes;
  sizes.know("batch", attention.batch);
  sizes.know("heads", attention.heads_kv);
  sizes.know("seqlen_kv", attention.seqlen_kv);
  sizes.know("total_k", attention.sequences.total_k);
  sizes.check(
      {"mass", is_varlen ? DimNames("heads, total_k") : DimNames("batch, heads, seqlen_kv"), DType::fp32},
      arguments.mass);
  check_result("mass", arguments.mass, operands);
  const TensorView& mass = arguments.mass;
  params.mass = static_cast<float*>(mass.data);
  params.mass_strides = {.batch = is_varlen ? 0 : stride_along(mass, 0),
                         .seq = stride_along(mass, mass.rank - 1),
                         .head = stride_along(mass, mass.rank - 2)};
  const SequenceGrid grid = key_grid(scores, attention, key_mass_keys(scores.head_dim));
  const std::uint64_t blocks = static_cast<std::uint64_t>(attention.heads_kv) *
                               static_cast<std::uint64_t>(grid.tiles) *
                               static_cast<std::uint64_t>(grid.entries);
  if (blocks > std::numeric_limits<std::int32_t>::max())
    refuse("k", fmt::format("has {} tiles of {} keys in all heads; at most {} fit", blocks,
                            key_mass_keys(scores.head_dim), std::numeric_limits<std::int32_t>::max()));
  return static_cast<unsigned>(blocks);
}

unsigned fill_maps(const KeyMassSpec& spec, KeyMassMaps& maps) {
  const AttentionSpec scores = scores_of(spec.attention);
  const AttentionParams& attention = maps.of_all.attention;
  const auto& [q, k, v, o] = tma_operands(attention);
  TmaOperand keys = k;
  if (spec.per_query_head) keys.heads /= scores.gqa_ratio;  // scores has the mass's heads_kv
  if (q.seqlen == 0 || k.seqlen == 0 || !is_mappable(q) || !is_mappable(keys)) return 0;
  const auto map = [&](const TmaOperand& operand, int rows) {
    return map_panels({.name = operand.name,
                       .data = operand.data,
                       .strides = operand.strides,
                       .batch = operand.batch,
                       .seqlen = operand.seqlen,
                       .heads = operand.heads,
                       .columns = scores.head_dim,
                       .box_rows = rows,
                       .dtype = scores.dtype});
  };
  maps.q = map(q, mass_step_queries);
  maps.k = map(keys, mass_key_box(scores.page_size));
  const SequenceGrid grid = key_grid(scores, attention, mass_block_keys);
  return static_cast<unsigned>(attention.heads_kv * grid.tiles * grid.entries);
}

}  // namespace jit
