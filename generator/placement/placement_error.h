// The error of invalid placement inputs.
#pragma once

#include <string>
#include <string_view>

namespace jit {

/// Throws Error invalid_argument: "field: message".
[[noreturn]] void refuse_placement(std::string_view field, const std::string& message);

}  // namespace jit
