// Rows whose bits do not depend on other rows of their tile.
#pragma once

#include "base/element.cuh"
#include "base/prelude.cuh"
#include "jit/options.h"
#include "steps/softmax.cuh"

namespace jit {

/// Whether rows are independent of each other: each moves its maximum by itself, and O has no −0, which keys that only
/// other rows see might change. So kernels of several families compute the same bits (docs/batch-invariance.md).
template <class Config>
inline constexpr bool rows_are_independent = Config::split_keys != 0 &&
                                             sizeof(typename Config::Element) == 2 &&
                                             !keys_are_narrow<Config> && Config::head_dim <= 256;

/// The rescale mode of kernels with spans.
template <class Config>
inline constexpr Rescale rescale_of_spans = rows_are_independent<Config> ? rescale_by_row : Rescale::always;
/// The rescale mode of split-KV kernels.
template <class Config>
// mutate: RescaledWhereOthersNeedIt
inline constexpr Rescale split_rescale = Config::split_keys != 0 ? rescale_of_spans<Config> : Rescale::lazy;

/// A value of O, normalized by the factor of its row.
template <class Config>
JIT_DEVICE float normalized(float value, float factor) {
  if constexpr (rows_are_independent<Config>) return __fmaf_rn(value, factor, 0.0f);  // −0 becomes 0
  return value * factor;
}

}  // namespace jit
