// Outputs beside o and LSE: which families compute them, and why others do not.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <jit/outputs.h>
#include <jit/spec.h>
#include <jit/spec_table.h>

namespace jit {

/// The outputs of a family. Those that keep the largest score of each row know two.
using FamilyOutputs = std::span<bool AttentionSpec::*const>;
inline constexpr std::array largest_scores = {&AttentionSpec::max_logit, &AttentionSpec::row_max};

/// Whether a spec asks for one of these.
constexpr bool asks_for(const AttentionSpec& spec, FamilyOutputs outputs) {
  for (bool AttentionSpec::*const asked : outputs) {
    if (spec.*asked) return true;
  }
  return false;
}

/// Refuses outputs of a spec whose scores nobody keeps.
std::optional<Refusal> refuse_outputs(const SpecField& field, const AttentionSpec& spec);

/// Why a family with these outputs cannot serve a spec; empty: it can.
std::string output_rejection(const AttentionSpec& spec, std::string_view family, FamilyOutputs outputs);

}  // namespace jit
