#include "generator/problem/output_table.h"

#include <algorithm>

#include <fmt/format.h>
#include <jit/dtype.h>

#include "generator/problem/fp8_refusals.h"

namespace jit {

std::string output_rejection(const AttentionSpec& spec, std::string_view family, FamilyOutputs outputs) {
  for (const OutputField& row : output_fields) {
    if (spec.*row.asked && std::find(outputs.begin(), outputs.end(), row.asked) == outputs.end())
      return fmt::format("{} does not compute {}; spec.{} is true", family, row.name, row.name);
  }
  return "";
}

std::string output_functor_rejection(const AttentionSpec& spec, std::string_view family, bool applies) {
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

std::optional<Refusal> refuse_outputs(const SpecField& field, const AttentionSpec& spec) {
  if (!(spec.*std::get<bool AttentionSpec::*>(field.member)) || !has_narrow_keys(spec)) return {};
  return refuse(field, "true",
                fmt::format("must be false with k and v of {}: it is of scores of 16-bit q and k",
                            to_string(spec.key_dtype())),
                "false");
}

}  // namespace jit
