// Generates kernel code from the meaning of a text.
#pragma once

#include <string>

#include "generator/functors/text_meaning.h"

namespace jit {

/// The body of IntervalMask's kept_of: lines of C++ that begin with `indent`. The text's tensors are members
/// tensor0, tensor1, …
std::string interval_source(const TextMeaning& meaning, const std::string& indent);

/// The body of RowRangeMask's row_begin and row_end, or of a mask's part, whose meaning has no real numbers.
std::string exact_source(const TextMeaning& meaning, const std::string& indent);

}  // namespace jit
