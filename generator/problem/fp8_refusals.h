// Rejections of spec fields about 8-bit elements.
#pragma once

#include <optional>
#include <string>

#include <jit/spec_table.h>

namespace jit {

inline std::optional<Refusal> refuse(const SpecField& field, std::string value, std::string rule,
                                     std::string nearest) {
  return Refusal{std::string(field.name), std::move(value), std::move(rule), std::move(nearest)};
}

std::optional<Refusal> refuse_kv_dtype(const SpecField& field, const AttentionSpec& spec);
std::optional<Refusal> refuse_values_in_keys(const SpecField& field, const AttentionSpec& spec);
std::optional<Refusal> refuse_descale(const SpecField& field, const AttentionSpec& spec);
std::optional<Refusal> refuse_value_descale(const SpecField& field, const AttentionSpec& spec);
std::optional<Refusal> refuse_lse_shift(const SpecField& field, const AttentionSpec& spec);
std::optional<Refusal> refuse_interpolated_exponentials(const SpecField& field, const AttentionSpec& spec);
/// Rejects v_mean and lse_shift without FP8 q, k and v.
std::optional<Refusal> refuse_without_fp8(const SpecField& field, const AttentionSpec& spec);

}  // namespace jit
