// The meaning of a text as code of a kernel.
#pragma once

#include <string>

#include "generator/functors/text_meaning.h"

namespace jit {

/// The body of IntervalMask's kept_of: lines of C++ that begin with `indent`. Tensors of the text are members tensor0, tensor1, …
std::string interval_source(const TextMeaning& meaning, const std::string& indent);

/// The body of RowRangeMask's row_begin and row_end, or of a part of a mask, whose meaning has no real numbers, in the
/// same way.
std::string exact_source(const TextMeaning& meaning, const std::string& indent);

}  // namespace jit
