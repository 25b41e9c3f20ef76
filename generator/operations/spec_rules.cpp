#include "generator/operations/spec_rules.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include <jit/dtype.h>
#include <jit/error.h>
#include <jit/spec.h>

namespace jit {

void refuse_spec(std::string_view field, std::string value, std::string rule, std::string nearest) {
  const std::string name = fmt::format("spec.{}", field);
  const Refusal refusal{name, std::move(value), std::move(rule), std::move(nearest)};
  throw Error(ErrorCode::invalid_spec, "validate", name, refusal.to_string());
}

void check_range(std::string_view field, int value, int low, int high) {
  if (value >= low && value <= high) return;
  refuse_spec(field, std::to_string(value), fmt::format("must be from {} to {}", low, high),
              std::to_string(std::clamp(value, low, high)));
}

void check_choice(std::string_view field, DType value, std::initializer_list<DType> choices) {
  if (std::find(choices.begin(), choices.end(), value) != choices.end()) return;
  std::string legal;
  for (const DType choice : choices) legal += (legal.empty() ? "" : ", ") + std::string(to_string(choice));
  refuse_spec(field, std::string(to_string(value)), "must be one of " + legal,
              std::string(to_string(*choices.begin())));
}

void check_alignment(int alignment) {
  if (alignment == 16 || alignment == 8 || alignment == 4 || alignment == 2) return;
  const int nearest = alignment > 8 ? 16 : alignment > 4 ? 8 : alignment > 2 ? 4 : 2;
  refuse_spec("alignment", std::to_string(alignment), "must be 16, 8, 4 or 2 bytes", std::to_string(nearest));
}

void check_rotary(int rotary_dim, int head_dim, DType cos_sin_dtype) {
  check_range("rotary_dim", rotary_dim, 0, head_dim);
  if (rotary_dim % 2 != 0)
    refuse_spec("rotary_dim", std::to_string(rotary_dim), "must be even", std::to_string(rotary_dim - 1));
  check_choice("cos_sin_dtype", cos_sin_dtype, {DType::fp32, DType::bf16, DType::fp16});
}

void check_norm(DType norm_dtype, float norm_eps) {
  check_choice("norm_dtype", norm_dtype, {DType::bf16, DType::fp16, DType::fp32});
  if (!(norm_eps > 0) || !std::isfinite(norm_eps))
    refuse_spec("norm_eps", fmt::format("{}", norm_eps), "must be positive and finite", "1e-06");
}

std::string type_line(std::string_view name, DType dtype, std::string_view doc) {
  return fmt::format("  using {} = {};  // {}\n", name, facts(dtype).device_type, doc);
}

std::string constant_line(std::string_view type, std::string_view name, std::string_view value,
                          std::string_view doc) {
  return fmt::format("  static constexpr {} {} = {};  // {}\n", type, name, value, doc);
}

std::string kernel_text(const Program& program, std::string_view params, std::size_t bytes,
                        std::string_view function, std::string_view assertions) {
  const std::string least_blocks =
      program.blocks_per_sm > 0 ? fmt::format(", {}", program.blocks_per_sm) : std::string();
  return fmt::format(
      "static_assert(sizeof({0}) == {1}, \"host and device disagree on the kernel's parameters\");\n{2}"
      "\nextern \"C\" __global__ void {7}__launch_bounds__({3}{6})\n"
      "{4}(const __grid_constant__ {0} params) {{\n  {5}<Config>(params);\n}}\n",
      params, bytes, assertions, program.threads, program.name, function, least_blocks,
      program.cluster > 1 ? fmt::format("__cluster_dims__({}, 1, 1) ", program.cluster) : "");
}

}  // namespace jit
