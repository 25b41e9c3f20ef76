#include "generator/operations/scores.h"

#include <string>
#include <utility>

#include <fmt/format.h>
#include <jit/dtype.h>
#include <jit/spec_table.h>

#include "generator/functors/functor_tensors.h"
#include "generator/operations/spec_rules.h"
#include "generator/problem/argument_table.h"
#include "generator/problem/arguments.h"
#include "generator/tensors/tensor_checks.h"
#include "templates/base/element.cuh"

namespace jit {

AttentionSpec scores_of(const AttentionSpec& given) {
  return {.dtype = given.dtype,
          .head_dim = given.head_dim,
          .gqa_ratio = given.gqa_ratio,
          .alignment = given.alignment,
          .seqlen_q = given.seqlen_q,
          .seqlen_kv = given.seqlen_kv,
          .sequences_q = given.sequences_q,
          .sequences_kv = given.sequences_kv,
          .page_size = given.page_size,
          .mask = given.mask,
          .score = given.score,
          .softmax_scale = given.softmax_scale};
}

void validate_scores(const AttentionSpec& given, std::string_view operation, bool reads_pages) {
  validate(given);
  const auto refuse = [&](std::string_view field, std::string value, std::string_view rule,
                          std::string nearest) {
    refuse_spec(field, std::move(value), fmt::format("{} for {}", rule, operation), std::move(nearest));
  };
  if (has_fp8_queries(given) || has_narrow_keys(given))
    refuse("kv_dtype", std::string(to_string(given.key_dtype())), "must be bf16 or fp16, as q is,", "bf16");
  if (given.head_dim > most_warp_columns)
    refuse("head_dim", std::to_string(given.head_dim), fmt::format("must be at most {}", most_warp_columns),
           std::to_string(most_warp_columns));
  if (given.sequences_kv == SequenceKind::padded || (has_pages(given) && !reads_pages))
    refuse("sequences_kv", std::string(to_string(given.sequences_kv)),
           reads_pages ? "must be dense, varlen or paged" : "must be dense or varlen", "varlen");
  for (const auto& [name, value] : {std::pair{"q_positions", given.q_positions},
                                    {"k_positions", given.k_positions},
                                    {"checked", given.checked},
                                    {"list_block", given.list_block != 0},
                                    {"key_arrivals", given.key_arrivals}}) {
    if (value) refuse(name, "true", "must be false", "false");
  }
}

void fill_params_of_scores(const AttentionSpec& scores, const ScoreOperands& operands,
                           AttentionParams& params) {
  // Keys and queries also stand for values and o, which the kernel does not access.
  fill_params_of_reader(scores, ArgumentRules(scores), functor_tensor_uses(scores),
                        {.q = operands.q,
                         .k = operands.k,
                         .v = operands.k,
                         .o = operands.q,
                         .lse = operands.lse,
                         .tensors = operands.tensors,
                         .cu_seqlens_q = operands.cu_seqlens_q,
                         .cu_seqlens_k = operands.cu_seqlens_k,
                         .seqused_k = operands.seqused_k,
                         .page_table = operands.page_table},
                        params);
}

void check_result(const char* name, const TensorView& result, const ScoreOperands& operands) {
  check_no_self_overlap(name, result);
  for (const auto& [other, tensor] : {std::pair{"q", &operands.q},
                                      {"k", &operands.k},
                                      {"lse", &operands.lse},
                                      {"cu_seqlens_q", &operands.cu_seqlens_q},
                                      {"cu_seqlens_k", &operands.cu_seqlens_k},
                                      {"page_table", &operands.page_table},
                                      {"seqused_k", &operands.seqused_k}})
    if (tensor->is_present()) check_no_overlap(name, result, other, *tensor);
  for (const NamedTensor& tensor : operands.tensors)
    check_no_overlap(name, result, tensor.name, tensor.tensor);
}

}  // namespace jit
