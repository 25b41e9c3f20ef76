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

// Rounds the threshold like flash-attention (set_params_fprop in csrc/flash_attn/flash_api.cpp).
void set_dropout_rate(DropoutParams& params, float dropout_p) {
  params.keep_probability = 1.0f - dropout_p;
  params.scale = 1.0f / params.keep_probability;
  params.thresholds = static_cast<unsigned>(std::floor(params.keep_probability * 255.0)) * 0x01010101u;
}

}  // namespace jit
