#include "generator/launch/raw_gradient.h"

#include <cstdint>

#include <jit/dtype.h>

namespace jit {

RawGradient raw_gradient(const AttentionSpec& spec, const AttentionParams& params, void* data) {
  const std::int64_t head = spec.value_head_dim(), seq = head * params.heads_q;
  const bool is_varlen = spec.sequences_q == SequenceKind::varlen;
  return {.data = data,
          .strides = {.batch = is_varlen ? 0 : seq * params.seqlen_q, .seq = seq, .head = head}};
}

std::size_t raw_gradient_bytes(const AttentionSpec& spec, const AttentionParams& params) {
  if (spec.output.is_none()) return 0;
  const bool is_varlen = spec.sequences_q == SequenceKind::varlen;
  const std::int64_t rows =
      is_varlen ? params.sequences.total_q : std::int64_t{params.batch} * params.seqlen_q;
  return static_cast<std::size_t>(rows * raw_gradient(spec, params, nullptr).strides.seq *
                                  size_of(spec.dtype));
}

}  // namespace jit
