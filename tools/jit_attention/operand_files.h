// Arrays of `run` in files, each of a type and of as many dimensions as it must have.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "array.h"

namespace jit::tool {

/// Rows of heads, as q, k, v, o and its gradient are, of float32 or float16; with `bytes` what those of the file stand
/// for by `option`. Throws BadInput.
Array read_operand(const std::string& path, std::optional<DType> bytes = {}, const char* option = "");

/// An array of any type as `dtype`; `wanted` is its shape in words. Throws BadInput.
Array read_as(const std::string& path, DType dtype, std::size_t rank, const char* wanted);

/// Rows of all sequences, one behind another.
inline bool is_varlen(const Array& array) { return array.shape.size() == 3; }

}  // namespace jit::tool
