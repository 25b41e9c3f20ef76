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

std::optional<Refusal> refuse_outputs(const SpecField& field, const AttentionSpec& spec) {
  if (!(spec.*std::get<bool AttentionSpec::*>(field.member)) || !has_narrow_keys(spec)) return {};
  return refuse(field, "true",
                fmt::format("must be false with k and v of {}: it is of scores of 16-bit q and k",
                            to_string(spec.key_dtype())),
                "false");
}

}  // namespace jit
