// Rows whose bits do not depend on the rows beside them.
#pragma once

#include "base/element.cuh"
#include "base/prelude.cuh"
#include "jit/options.h"
#include "steps/softmax.cuh"

namespace jit {

/// Whether rows know nothing of the rows beside them: each moves its maximum by itself, and O has no zero with a sign,
/// which keys that only others see might change. So kernels of several families compute the same bits
/// (docs/batch-invariance.md).
template <class Config>
inline constexpr bool rows_are_apart = Config::split_keys != 0 && sizeof(typename Config::Element) == 2 &&
                                       !keys_are_narrow<Config> && Config::head_dim <= 256;

/// When a row's output is rescaled, where its bits must not depend on rows beside it.
template <class Config>
inline constexpr Rescale rescale_of_spans = rows_are_apart<Config> ? rescale_by_row : Rescale::always;
/// When it is rescaled in all kernels whose keys are split.
template <class Config>
// mutate: RescaledWhereOthersNeedIt
inline constexpr Rescale split_rescale = Config::split_keys != 0 ? rescale_of_spans<Config> : Rescale::lazy;

/// A value of O, normalized by the factor of its row.
template <class Config>
JIT_DEVICE float normalized(float value, float factor) {
  if constexpr (rows_are_apart<Config>) return __fmaf_rn(value, factor, 0.0f);  // −0 becomes 0
  return value * factor;
}

}  // namespace jit
