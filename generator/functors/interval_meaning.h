// Evaluates a text for all queries and keys of a tile at once on the host, by the interval operations of
// kernels (templates/problem/interval.cuh).
#pragma once

#include <array>
#include <functional>

#include "generator/functors/text_meaning.h"
#include "templates/problem/interval.cuh"

namespace jit {

/// Bounds of each of text_inputs(), in their order.
using TextInputs = std::array<Interval<int>, 7>;

/// Element `index` of a tensor, by its index in the text; NaN if unknown.
using TextElement = std::function<double(int tensor, std::int64_t index)>;

/// Whether the text keeps the scores: certainly, possibly. Without `element`, tensors are unknown.
Interval<bool> kept(const TextMeaning& meaning, const TextInputs& inputs,
                    const TextElement& element = nullptr);

/// The value of a meaning of type whole64.
Interval<long long> whole_number(const TextMeaning& meaning, const TextInputs& inputs);

}  // namespace jit
