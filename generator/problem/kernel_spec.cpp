#include "generator/problem/kernel_spec.h"

#include <jit/spec_table.h>

#include "generator/problem/output_table.h"

namespace jit {

AttentionSpec with_lengths(AttentionSpec spec) {
  if (!is_dense(spec)) return spec;
  // Sufficient: kernels read both lengths if either kind is not dense.
  spec.sequences_kv = SequenceKind::padded;
  spec.seqlen_q = spec.seqlen_kv = 0;
  return spec;
}

AttentionSpec forward_spec(const AttentionSpec& spec, bool has_device_lengths) {
  AttentionSpec without_sinks = spec;
  without_sinks.sinks = false;
  const bool has_own_kernels = spec.dropout || (spec.split_keys != 0 && is_plain(without_sinks));
  return has_own_kernels && has_device_lengths ? with_lengths(spec) : spec;
}

AttentionSpec gradient_spec(AttentionSpec spec) {
  spec.sinks = false;
  spec.split_keys = 0;
  const bool mean_score = spec.mean_score;  // which has a gradient
  for (const OutputField& output : output_fields) spec.*output.asked = false;
  spec.mean_score = mean_score;
  spec.output = {};
  return spec;
}

AttentionSpec as_given(AttentionSpec spec) {
  if (spec.sequences_kv == SequenceKind::padded) spec.sequences_kv = SequenceKind::dense;
  return spec;
}

}  // namespace jit
