// A mask of the example: every so many keys, backwards from the query's own position.
#pragma once

#include "generator/functors/functor_node.h"

namespace jit {

inline constexpr std::array strided_parameters = {
    FunctorParameter{.name = "period",
                     .kind = ParameterKind::whole,
                     .is_legal = [](const FunctorArgument& period) { return std::get<int>(period) > 0; },
                     .rule = "must be at least 1"}};

inline constexpr MaskRow strided_row{
    .functor = {.name = "strided",
                .device_type = "StridedMask<period>",
                .doc = "a query sees its own position and, backwards from there, every period-th key",
                .parameters = strided_parameters},
    .keep = [](const HostFunctor& f, const Place& at) {
      const std::int64_t distance = at.q + f.sizes.seqlen_kv - f.sizes.seqlen_q - at.k;
      return distance >= 0 && distance % f.whole(0) == 0;
    }};

/// A query sees its own position and, backwards from there, every `period`-th key. Throws Error invalid_spec
/// for a period below 1.
inline Mask strided(int period) { return make_mask(strided_row, {period}); }

}  // namespace jit
