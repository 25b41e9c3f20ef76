#include "generator/problem/output_table.h"

#include <algorithm>

#include <fmt/format.h>
#include <jit/dtype.h>

#include "generator/problem/fp8_refusals.h"

namespace jit {
namespace {

// The most columns of a row of O in one warp.
constexpr int most_found_columns = 256;

}  // namespace

bool has_quantized_output(const AttentionSpec& spec) {
  return !has_fp8_queries(spec) && size_of(output_dtype(spec)) == 1;
}

std::string output_rejection(const AttentionSpec& spec, std::string_view family, FamilyOutputs outputs) {
  for (const OutputField& row : output_fields) {
    if (spec.*row.asked && std::find(outputs.begin(), outputs.end(), row.asked) == outputs.end())
      return fmt::format("{} does not compute {}; spec.{} is true", family, row.name, row.name);
  }
  return "";
}

std::string output_functor_rejection(const AttentionSpec& spec, std::string_view family, bool applies) {
  if (!applies && has_quantized_output(spec))
    return fmt::format("{} does not write 8-bit o; spec.out_dtype is {}", family,
                       to_string(output_dtype(spec)));
  if (applies || spec.output.is_none()) return "";
  return fmt::format("{} applies no output functors; spec.output is {}", family, spec.output.to_string());
}

std::optional<Refusal> refuse_output_functor(const SpecField& field, const AttentionSpec& spec) {
  if (spec.output.is_none()) return {};
  const auto beside = [&](std::string_view what) {
    return refuse(field, spec.output.to_string(), fmt::format("must be none {}", what), "none");
  };
  if (has_fp8_queries(spec)) return beside("with FP8 q");
  if (spec.values_in_keys) return beside("with values_in_keys");
  if (spec.list_block != 0) return beside("with list_block: texts would see a list in place of its sequence");
  if (spec.q_positions || spec.k_positions)
    return beside("with q_positions and k_positions: partial results are merged before it applies");
  return {};
}

std::optional<Refusal> refuse_quantized_output(const SpecField& field, const AttentionSpec& spec) {
  const std::string given(to_string(output_dtype(spec))), own(to_string(spec.dtype));
  if (output_dtype(spec) != DType::fp8_e4m3 && output_dtype(spec) != DType::int8)
    return refuse(field, given, fmt::format("must be {}, fp32, fp8_e4m3 or int8", own), "fp8_e4m3");
  const auto beside = [&](std::string_view what) {
    return refuse(field, given, fmt::format("must be that of q, {}, {}", own, what), own);
  };
  if (has_narrow_keys(spec)) return beside("with k and v of 8 or 4 bits");
  if (spec.values_in_keys) return beside("with values_in_keys");
  if (spec.list_block != 0) return beside("with list_block");
  if (has_positions(spec))
    return beside("with q_positions and k_positions: partial results are merged before it is rounded");
  return {};
}

std::optional<Refusal> refuse_output_scales(const SpecField& field, const AttentionSpec& spec) {
  if (!spec.o_descale) return {};
  if (!has_quantized_output(spec))
    return refuse(field, "true",
                  fmt::format("must be false with o of {}: only o of fp8_e4m3 and int8 has scales",
                              to_string(output_dtype(spec))),
                  "false");
  // Columns of o are divided among warps by the larger head dim.
  if (std::max(spec.head_dim, spec.value_head_dim()) <= most_found_columns) return {};
  return refuse(
      field, "true",
      fmt::format("must be false with head dims of {} and {}, one above {}: several warps share the "
                  "columns of a row",
                  spec.head_dim, spec.value_head_dim(), most_found_columns),
      "false");
}

std::optional<Refusal> refuse_mean_score(const SpecField& field, const AttentionSpec& spec) {
  if (!spec.mean_score) return {};
  if (spec.split_keys != 0)
    return refuse(field, "true", "must be false with split_keys: spans are merged without their means",
                  "false");
  if (spec.values_in_keys) return refuse(field, "true", "must be false with values_in_keys", "false");
  if (spec.list_block != 0) return refuse(field, "true", "must be false with list_block", "false");
  return refuse_outputs(field, spec);
}

std::optional<Refusal> refuse_running_lse(const SpecField& field, const AttentionSpec& spec) {
  if (!spec.running_lse) return {};
  const auto unless = [&](std::string_view rule) {
    return refuse(field, "true", fmt::format("must be false {}", rule), "false");
  };
  if (has_fp8_queries(spec) || has_narrow_keys(spec) || output_dtype(spec) != DType::fp32)
    return unless("unless q, k and v have 16 bits and out_dtype is fp32");
  if (spec.values_in_keys) return unless("with values_in_keys");
  if (spec.list_block != 0) return unless("with list_block");
  if (spec.mean_score) return unless("with mean_score, which is of the call's keys");
  if (!spec.output.is_none()) return unless("with an output functor, which applies to the last result");
  return {};
}

std::optional<Refusal> refuse_outputs(const SpecField& field, const AttentionSpec& spec) {
  if (!(spec.*std::get<bool AttentionSpec::*>(field.member)) || !has_narrow_keys(spec)) return {};
  return refuse(field, "true",
                fmt::format("must be false with k and v of {}: it is of scores of 16-bit q and k",
                            to_string(spec.key_dtype())),
                "false");
}

}  // namespace jit
