// The parts of a mask's text, as members of its struct.
#pragma once

#include <string>
#include <string_view>

#include "generator/functors/mask_parts.h"

namespace jit {

/// Functions `NAME_begin` and `NAME_end` of a query, which return Exact<long long>.
std::string range_source(const TextRowRange& range, std::string_view name);

/// `kept_bits`, and a function per part that it calls.
std::string parts_source(const MaskParts& parts);

}  // namespace jit
