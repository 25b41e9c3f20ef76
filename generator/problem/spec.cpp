#include <jit/spec.h>

#include <cmath>

#include <fmt/format.h>
#include <jit/error.h>
#include <jit/spec_table.h>

#include "templates/base/params.cuh"

namespace jit {
namespace {

constexpr Arch oldest_arch{8, 0, 0};

// What no GPU can serve.
std::vector<Refusal> refusals_everywhere(const AttentionSpec& spec) {
  std::vector<Refusal> refusals;
  for (const SpecField& field : spec_fields()) {
    if (field.refusal == nullptr) continue;
    if (std::optional<Refusal> refusal = field.refusal(field, spec)) refusals.push_back(std::move(*refusal));
  }
  // Names are shared between mask and score: one tensor, one dtype, one place among the kernel's parameters.
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

}  // namespace

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

std::vector<Refusal> supports(const AttentionSpec& spec, Arch arch) {
  std::vector<Refusal> refusals = refusals_everywhere(spec);
  if (std::pair(arch.major, arch.minor) < std::pair(oldest_arch.major, oldest_arch.minor)) {
    refusals.push_back({"arch", to_string(arch), "must be sm_80 or later (cp.async and mma.sync m16n8k16)",
                        to_string(oldest_arch)});
  }
  constexpr Arch latents_arch{9, 0, 'a'};  // one family alone has room for so wide an output
  if (spec.head_dim > max_head_dim && arch != latents_arch) {
    refusals.push_back({"head_dim", std::to_string(spec.head_dim),
                        fmt::format("must be at most {} on {}; {} has kernels for more", max_head_dim,
                                    to_string(arch), to_string(latents_arch)),
                        std::to_string(max_head_dim)});
  }
  return refusals;
}

std::vector<Refusal> supports(const AttentionSpec& spec, const DeviceInfo& device) {
  return supports(spec, native_arch(device));
}

void validate(const AttentionSpec& spec) {
  const std::vector<Refusal> refusals = refusals_everywhere(spec);
  if (refusals.empty()) return;
  throw Error(ErrorCode::invalid_spec, "validate", "spec." + refusals[0].field,
              "spec." + refusals[0].to_string());
}

}  // namespace jit
