#include "generator/problem/dropout_arguments.h"

#include <cmath>

#include <fmt/format.h>

#include "generator/tensors/tensor_checks.h"

namespace jit {

void check_dropout_rate(const AttentionSpec& spec, float dropout_p) {
  if (!(dropout_p >= 0 && dropout_p < 1))
    refuse("dropout_p", fmt::format("is {}; it must be at least 0 and less than 1", dropout_p));
  if (dropout_p > 0 && !spec.dropout)
    refuse("dropout_p", fmt::format("is {}, but the spec has no dropout = true", dropout_p));
}

// The threshold is rounded as flash-attention rounds it (set_params_fprop in csrc/flash_attn/flash_api.cpp).
DropoutParams dropout_params(float dropout_p, const TensorView& rng_state) {
  const float keep_probability = 1.0f - dropout_p;
  const auto threshold = static_cast<unsigned>(std::floor(keep_probability * 255.0));
  return {.rng_state = static_cast<const unsigned long long*>(rng_state.data),
          .keep_probability = keep_probability,
          .scale = 1.0f / keep_probability,
          .thresholds = threshold * 0x01010101u,
          .mask = {}};
}

}  // namespace jit
