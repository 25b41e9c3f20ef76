// Masks and scores in files: the body of the functor as C++, with what it needs declared in comments on top.
//
//   // constant: window = 128
//   // tensor: ids int32
//   return q - k < window && ids[q] == ids[k];
//   // classify:
//   return q_end <= k_begin ? TileClass::empty : TileClass::partial;
//
// A score may have its derivative there, behind "// derivative:".
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include <jit/functor_text.h>

namespace jit::tool {

/// What --help says of these files.
extern const char* const functor_file_help;

/// The functor that the text of a file describes. Lines keep their numbers, so that compile errors point into
/// the file. Throws BadInput for a declaration that cannot be read.
FunctorText parse_functor(const std::string& name, std::string_view text);

/// Reads "name=path". Throws BadInput.
FunctorText read_functor(const std::string& argument);

/// The two sides of "name=value"; throws BadInput, naming the option, when there are none.
std::pair<std::string, std::string> split_assignment(std::string_view option, const std::string& argument);

}  // namespace jit::tool
