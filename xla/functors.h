// User-defined masks and scores in attributes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <jit/functor_text.h>

#include "xla/abi.h"

namespace jit::xla {

/// Reads a functor from a dictionary of strings: name, body, classify, derivative; constants, "window = 128,
/// on = true"; tensors, "ids int32, table fp32". Throws Error invalid_argument, naming the attribute, for
/// invalid input.
FunctorText read_functor(const Attributes& attributes);

/// Parts of a text between separators, trimmed, without empty ones.
std::vector<std::string> split(std::string_view text, char separator);

}  // namespace jit::xla
