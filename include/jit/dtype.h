/// @file
/// A table of all facts about element types.
///
/// @code
/// const jit::DTypeFacts& e4m3 = jit::facts(jit::DType::fp8_e4m3);
/// assert(e4m3.name == "fp8_e4m3" && e4m3.bytes == 1 && e4m3.is_fp8() && !e4m3.is_floating());
/// assert(e4m3.is_stored() && !e4m3.is_cache_alone() && jit::facts(jit::DType::int4).is_cache_alone());
/// for (const jit::DTypeFacts& type : jit::dtype_table()) std::printf("%s\n", std::string(type.name).c_str());
/// @endcode
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include <jit/tensor.h>

namespace jit {

/// The kinds of numbers, as DLPack's codes.
enum class NumberKind : std::uint8_t {
  signed_integer = 0,
  unsigned_integer = 1,
  floating = 2,
  bfloat = 4,
  float8_e4m3 = 10,
  float8_e5m2 = 12,
  packed = 255,  ///< bytes of several numbers, or of a row: none of DLPack's
};

/// The facts about one element type: its names in files and other frameworks, and what kernels need.
struct DTypeFacts {
  DType dtype;                   ///< the type
  std::string_view name;         ///< "bf16": in specs, files and messages
  int bytes;                     ///< of one element
  NumberKind kind;               ///< integer, floating point or FP8
  std::string_view device_type;  ///< in kernels, C++
  std::string_view numpy_name;   ///< "float16"; where NumPy has no such type, `name`
  std::string_view npy_descr;    ///< in .npy files; empty: cannot stand in one

  // Properties of what attention takes as q, k, v and o.
  bool is_operand = false;         ///< of 16 bits
  std::string_view ptx_type = {};  ///< in wgmma's name
  int mma_k = 0;                   ///< elements along the sum of one tensor-core instruction
  int tma_type = 0;                ///< the CUtensorMapDataType
  double tolerance = 0;            ///< of a kernel's outputs, relative to their root mean square

  // Properties of what attention takes as k and v of a cache alone.
  int numbers = 1;        ///< in an element
  int scale_columns = 0;  ///< columns of a row that share a scale of a byte; 0: there are none
  int row_bytes = 0;      ///< of a latent, with its scales; 0: rows have any length

  /// Whether it has 8 bits and is a floating-point type.
  bool is_fp8() const { return kind == NumberKind::float8_e4m3 || kind == NumberKind::float8_e5m2; }
  /// Whether k and v of a cache may have it under 16-bit q.
  bool is_stored() const { return is_fp8() || is_cache_alone(); }
  /// Whether a cache alone may have it.
  bool is_cache_alone() const {
    return kind == NumberKind::packed || (kind == NumberKind::signed_integer && bytes == 1);
  }
  /// Whether it is one of 16 bits or more.
  bool is_floating() const { return kind == NumberKind::floating || kind == NumberKind::bfloat; }
};

/// One row per enumerator, in their order.
std::span<const DTypeFacts> dtype_table();

/// The row of a type. Throws Error invalid_argument for what is no enumerator.
const DTypeFacts& facts(DType dtype);

}  // namespace jit
