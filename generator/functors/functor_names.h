// Which names the constants and tensors of a text functor cannot have.
#pragma once

#include <string_view>

namespace jit {

/// Why a name that is a C++ identifier is taken, "a keyword of C++"; empty: it is free. Constants and tensors
/// are local variables of the functions that hold the user's text: they may hide what is not listed here.
std::string_view taken_as(std::string_view name);

}  // namespace jit
