#include "generator/pack/quantizer_kernels.h"

#include <bit>

#include <jit/quantize.h>
#include <jit/spec_table.h>

#include "generator/operations/quantize/program.h"

namespace jit {
namespace {

QuantizedScales quantized_scales(ScaleKind kind) {
  switch (kind) {
    case ScaleKind::head:
      return QuantizedScales::head;
    case ScaleKind::token:
      return QuantizedScales::token;
    case ScaleKind::channel:
      return QuantizedScales::channel;
    case ScaleKind::block:
      return QuantizedScales::block;
  }
  return QuantizedScales::given;
}

// Sequence kinds of quantizers: the spec's, and dense, since attention also takes tensors quantized so.
std::vector<SequenceKind> sequences_of_calls(const AttentionSpec& spec) {
  const bool is_varlen =
      spec.sequences_q == SequenceKind::varlen || spec.sequences_kv == SequenceKind::varlen;
  return {SequenceKind::dense, is_varlen ? SequenceKind::varlen : SequenceKind::padded};
}

}  // namespace

std::vector<KernelBuild> of_quantizers(const AttentionSpec& spec, Target target) {
  if (!has_fp8_queries(spec)) return {};
  QuantizeSpec made{.dtype = output_dtype(spec),
                    .out_dtype = spec.dtype,
                    .head_dim = spec.head_dim,
                    .head_dim_v = spec.value_head_dim(),
                    .scales = quantized_scales(spec.descale_per),
                    .value_scales = quantized_scales(spec.v_descale_per),
                    .center_values = spec.v_mean};
  std::vector<KernelBuild> builds;
  for (const bool rotate : {false, true}) {
    made.rotate = rotate;
    if (rotate && !std::has_single_bit(static_cast<unsigned>(spec.head_dim))) continue;
    // k may be centered without `lse_shift`, too, if LSE is not needed.
    for (const bool center_keys : {false, true}) {
      made.center_keys = center_keys;
      if (spec.lse_shift && !center_keys) continue;
      for (const SequenceKind sequences : sequences_of_calls(spec)) {
        made.sequences = sequences;
        validate(made);
        builds.push_back(build_of(quantize_program(made), target));
        if (can_keep_rows(target.arch) && cannot_keep_rows(made).empty())
          builds.push_back(build_of(resident_quantize_program(made), target));
      }
    }
  }
  return builds;
}

}  // namespace jit
