// Shared by operations on scores before the softmax: key masses and scores of blocks.
#pragma once

#include <string_view>

#include <jit/spec.h>
#include <jit/tensor.h>

#include "templates/base/params.cuh"

namespace jit {

/// The attention spec with the scores of `given`, without fields about values and o.
AttentionSpec scores_of(const AttentionSpec& given);

/// Throws Error invalid_spec where `operation`, such as "key masses", has no scores of `given`, or none over pages.
void validate_scores(const AttentionSpec& given, std::string_view operation, bool reads_pages = false);

/// The tensors from which scores are computed.
struct ScoreOperands {
  const TensorView &q, &k;
  const TensorView& lse;  ///< may be absent, as the next four
  const TensorView &cu_seqlens_q, &cu_seqlens_k;
  const TensorView &page_table, &seqused_k;
  const NamedTensors& tensors;
};

/// Checks the operands and fills `params`. Throws Error invalid_argument. `scores` comes from scores_of().
void fill_params_of_scores(const AttentionSpec& scores, const ScoreOperands& operands,
                           AttentionParams& params);

/// Throws Error invalid_argument if `result` overlaps itself or an operand.
void check_result(const char* name, const TensorView& result, const ScoreOperands& operands);

}  // namespace jit
