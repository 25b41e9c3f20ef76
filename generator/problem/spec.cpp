#include <jit/spec.h>

#include <cmath>

#include <fmt/format.h>
#include <jit/error.h>
#include <jit/spec_table.h>

#include "generator/problem/spec_refusals.h"
#include "templates/base/params.cuh"

namespace jit {

std::vector<Refusal> refusals_everywhere(const AttentionSpec& spec) {
  std::vector<Refusal> refusals;
  for (const SpecField& field : spec_fields()) {
    if (field.refusal == nullptr) continue;
    if (std::optional<Refusal> refusal = field.refusal(field, spec)) refusals.push_back(std::move(*refusal));
  }
  // Mask and score share names: equal names are one tensor, with one dtype and one parameter.
  try {
    std::vector<FunctorTensorSpec> tensors = functor_tensors(spec);
    if (tensors.size() > static_cast<std::size_t>(max_functor_tensors)) {
      refusals.push_back({"mask and score", fmt::format("{} tensors", tensors.size()),
                          fmt::format("may read at most {} tensors together", max_functor_tensors),
                          std::to_string(max_functor_tensors)});
    }
  } catch (const Error& error) {
    refusals.push_back({"mask and score", error.field(), error.message(), "different names"});
  }
  return refusals;
}

float AttentionSpec::scale() const {
  return softmax_scale ? *softmax_scale : 1.0f / std::sqrt(static_cast<float>(head_dim));
}

std::string to_string(const AttentionSpec& spec) {
  std::string text;
  for (const SpecField& field : spec_fields()) {
    if (!field.text_label || (!field.is_always_shown && is_default(field, spec))) continue;
    text += *field.text_label;
    text += value_text(field, spec);
  }
  return text;
}

std::string Refusal::to_string() const {
  return fmt::format("{} = {} {}; nearest supported: {}", field, value, rule, nearest);
}

void validate(const AttentionSpec& spec) {
  const std::vector<Refusal> refusals = refusals_everywhere(spec);
  if (refusals.empty()) return;
  throw Error(ErrorCode::invalid_spec, "validate", "spec." + refusals[0].field,
              "spec." + refusals[0].to_string());
}

}  // namespace jit
