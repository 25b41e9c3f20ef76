// Arrays in files of numpy's .npy format, versions 1 to 3. Files may come from anywhere: whatever is in them,
// reading gives an array or one sentence.
#pragma once

#include <string>

#include <jit/output_file.h>

#include "array.h"

namespace jit::tool {

/// Reads a file of '<f4', '<f2', '<i4', '<i8' or '|u1' elements, or '|b1', which become uint8; column-major ("Fortran") arrays are brought
/// into row-major order. Throws BadInput, naming the file, for everything else.
Array read_npy(const std::string& path);

/// Writes version 1.0. Throws Error io_error. Requires: the dtype is one that read_npy reads.
void write_npy(const OutputFile& file, const Array& array);

}  // namespace jit::tool
