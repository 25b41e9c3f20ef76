// Reserved names, which constants and tensors of text functors cannot have.
#pragma once

#include <string_view>

namespace jit {

/// Why a C++ identifier is reserved, such as "a keyword of C++"; empty if it is free. Constants and tensors
/// are local variables of functions with the user's text, so they may hide other names.
std::string_view taken_as(std::string_view name);

}  // namespace jit
