// A factor of all scores of a tile that is a number from memory: any number.
#pragma once

#include "base/prelude.cuh"

namespace jit {

/// Where such a factor goes. In exponents, which softmax multiplies by a factor anyway, it costs nothing. But times 0 the
/// −inf of a dropped key would be no number, and times a negative number maxima would be minima: then it is multiplied
/// into scores before any is dropped. One of both is 1.
struct ScoreFactor {
  float exponents = 1;
  float scores = 1;

  /// By whole warps, of scores that nothing was dropped of.
  template <class Scores>
  __device__ __forceinline__ void scale(Scores& products) const {
    if (scores != 1.0f) products.for_each(0, 0, [&](float& score, int, int) { score *= scores; });
  }
};

__device__ __forceinline__ ScoreFactor score_factor(float factor) {
  constexpr float least = 0x1p-100f, most = 0x1p100f;
  const bool is_of_exponents = factor >= least && factor <= most;
  return {is_of_exponents ? factor : 1.0f, is_of_exponents ? 1.0f : factor};
}

}  // namespace jit
