// Arrays in files of numpy's .npy format, versions 1 to 3. Files are untrusted: reading returns an array or
// throws BadInput.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <jit/output_file.h>

#include "array.h"

namespace jit::tool {

/// Reads a file of '<f4', '<f2', '<i4', '<i8' or '|u1' elements, or '|b1', which become uint8; column-major
/// ("Fortran") arrays become row-major. Throws BadInput, naming the file, for everything else.
Array read_npy(const std::string& path);

/// Elements of any type that NumPy has, row-major.
struct NpyArray {
  std::string descr;  ///< '<f4', '|V2' (ml_dtypes' bfloat16), …
  std::vector<std::int64_t> shape;
  std::vector<std::byte> bytes;
};

/// Bytes of an element; 0 for types of sub-byte elements or another byte order.
std::size_t element_bytes(std::string_view descr);

/// Reads a file with any element type of element_bytes, as read_npy does.
NpyArray read_any_npy(const std::string& path);
void write_npy(const OutputFile& file, const NpyArray& array);

/// Writes version 1.0. Throws Error io_error. Requires a dtype that read_npy reads.
void write_npy(const OutputFile& file, const Array& array);

}  // namespace jit::tool
