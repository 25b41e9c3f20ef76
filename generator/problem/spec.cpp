#include <jit/spec.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>
#include <jit/error.h>

#include "templates/base/params.cuh"

namespace jit {
namespace {

constexpr int min_head_dim = 8;
constexpr int max_head_dim = 256;
constexpr int head_dim_multiple = 8;
constexpr Arch oldest_arch{8, 0, 0};

void check_head_dim(std::vector<Refusal>& refusals, const char* field, int value) {
  if (value >= min_head_dim && value <= max_head_dim && value % head_dim_multiple == 0) return;
  const int rounded =
      value > max_head_dim
          ? max_head_dim
          : std::max(min_head_dim, (value + head_dim_multiple - 1) / head_dim_multiple * head_dim_multiple);
  refusals.push_back(
      {field, std::to_string(value),
       fmt::format("must be a multiple of {} from {} to {}", head_dim_multiple, min_head_dim, max_head_dim),
       std::to_string(rounded)});
}

// What no GPU can serve.
std::vector<Refusal> refusals_everywhere(const AttentionSpec& spec) {
  std::vector<Refusal> refusals;
  if (spec.dtype != DType::bf16 && spec.dtype != DType::fp16) {
    refusals.push_back({"dtype", std::string(to_string(spec.dtype)), "must be bf16 or fp16", "bf16"});
  }
  check_head_dim(refusals, "head_dim", spec.head_dim);
  if (spec.head_dim_v != 0) check_head_dim(refusals, "head_dim_v", spec.head_dim_v);
  if (spec.gqa_ratio < 1) {
    refusals.push_back(
        {"gqa_ratio", std::to_string(spec.gqa_ratio), "must be at least 1 (query heads per KV head)", "1"});
  }
  if (spec.alignment != 16 && spec.alignment != 8 && spec.alignment != 4 && spec.alignment != 2) {
    const int nearest = spec.alignment >= 16 ? 16 : spec.alignment >= 8 ? 8 : spec.alignment >= 4 ? 4 : 2;
    refusals.push_back({"alignment", std::to_string(spec.alignment), "must be 16, 8, 4 or 2 bytes",
                        std::to_string(nearest)});
  }
  for (const auto& [field, value] :
       {std::pair("seqlen_q", spec.seqlen_q), std::pair("seqlen_kv", spec.seqlen_kv)}) {
    if (value < 0) {
      refusals.push_back(
          {field, std::to_string(value), "must be positive, or 0 for a length given at run time", "0"});
    }
  }
  if (spec.softmax_scale && (!std::isfinite(*spec.softmax_scale) || *spec.softmax_scale <= 0)) {
    refusals.push_back({"softmax_scale", fmt::format("{}", *spec.softmax_scale),
                        "must be positive and finite",
                        fmt::format("{}", 1 / std::sqrt(static_cast<float>(std::max(1, spec.head_dim))))});
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
  std::string text = fmt::format("{} d{}", to_string(spec.dtype), spec.head_dim);
  if (spec.value_head_dim() != spec.head_dim) text += fmt::format("/{}", spec.value_head_dim());
  if (spec.gqa_ratio != 1) text += fmt::format(" gqa{}", spec.gqa_ratio);
  if (spec.alignment != 16) text += fmt::format(" align{}", spec.alignment);
  if (spec.seqlen_q != 0) text += fmt::format(" seqlen_q={}", spec.seqlen_q);
  if (spec.seqlen_kv != 0) text += fmt::format(" seqlen_kv={}", spec.seqlen_kv);
  if (spec.mask != Mask()) text += " mask=" + spec.mask.to_string();
  if (spec.score != Score()) text += " score=" + spec.score.to_string();
  return text;
}

std::string Refusal::to_string() const {
  return fmt::format("{} = {} {}; nearest supported: {}", field, value, rule, nearest);
}

std::vector<FunctorTensorSpec> functor_tensors(const AttentionSpec& spec) {
  std::vector<FunctorTensorSpec> tensors = spec.mask.tensors();
  for (const FunctorTensorSpec& tensor : spec.score.tensors()) {
    const auto known = std::find_if(tensors.begin(), tensors.end(), [&](const FunctorTensorSpec& other) {
      return other.name == tensor.name;
    });
    if (known == tensors.end()) {
      tensors.push_back(tensor);
    } else if (known->dtype != tensor.dtype) {
      throw Error(ErrorCode::invalid_spec, "validate", tensor.name,
                  fmt::format("mask and score both read a tensor '{}', as {} and as {}", tensor.name,
                              to_string(known->dtype), to_string(tensor.dtype)));
    }
  }
  return tensors;
}

std::vector<Refusal> supports(const AttentionSpec& spec, Arch arch) {
  std::vector<Refusal> refusals = refusals_everywhere(spec);
  if (std::pair(arch.major, arch.minor) < std::pair(oldest_arch.major, oldest_arch.minor)) {
    refusals.push_back({"arch", to_string(arch), "must be sm_80 or later (cp.async and mma.sync m16n8k16)",
                        to_string(oldest_arch)});
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
