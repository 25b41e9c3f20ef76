#include "generator/operations/key_mass/arguments.h"

#include <cstdint>
#include <limits>

#include <fmt/format.h>

#include "generator/functors/functor_tensors.h"
#include "generator/launch/sequence_grid.h"
#include "generator/operations/key_mass/program.h"
#include "generator/operations/operands.h"
#include "generator/problem/argument_table.h"
#include "generator/problem/arguments.h"
#include "generator/tensors/tensor_checks.h"

namespace jit {
namespace {

void check_mass(const KeyMassArguments& arguments) {
  const TensorView& mass = arguments.mass;
  check_no_self_overlap("mass", mass);
  for (const auto& [name, tensor] : {std::pair{"q", &arguments.q},
                                     {"k", &arguments.k},
                                     {"lse", &arguments.lse},
                                     {"cu_seqlens_q", &arguments.cu_seqlens_q},
                                     {"cu_seqlens_k", &arguments.cu_seqlens_k}})
    if (tensor->is_present()) check_no_overlap("mass", mass, name, *tensor);
  for (const NamedTensor& tensor : arguments.tensors)
    check_no_overlap("mass", mass, tensor.name, tensor.tensor);
}

}  // namespace

unsigned fill_params(const KeyMassSpec& spec, const KeyMassArguments& arguments, KeyMassParams& params) {
  const AttentionSpec scores = scores_of(spec);
  if (!arguments.lse.is_present()) refuse("lse", "is missing; give the LSE that attention wrote");
  // Keys and queries stand for values and o, which nobody reads.
  fill_params_of_reader(scores, ArgumentRules(scores), functor_tensor_uses(scores),
                        {.q = arguments.q,
                         .k = arguments.k,
                         .v = arguments.k,
                         .o = arguments.q,
                         .lse = arguments.lse,
                         .tensors = arguments.tensors,
                         .cu_seqlens_q = arguments.cu_seqlens_q,
                         .cu_seqlens_k = arguments.cu_seqlens_k},
                        params.attention);
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
  check_mass(arguments);
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

}  // namespace jit
