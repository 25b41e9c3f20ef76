// Arrays of `run` in files, with checked element type and rank.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "array.h"

namespace jit::tool {

/// Reads rows of heads (q, k, v, o or do) in float32 or float16; with `bytes`, the file's bytes stand for
/// that type, which `option` gave. Throws BadInput.
Array read_operand(const std::string& path, std::optional<DType> bytes = {}, const char* option = "");

/// Reads an array as `dtype`; `wanted` describes its shape. Throws BadInput.
Array read_as(const std::string& path, DType dtype, std::size_t rank, const char* wanted);

/// Whether the rows of all sequences are packed.
inline bool is_varlen(const Array& array) { return array.shape.size() == 3; }

}  // namespace jit::tool
