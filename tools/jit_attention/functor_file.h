// Masks and scores in files: texts that jit/functor_file.h reads.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include <jit/functor_file.h>

namespace jit::tool {

/// The paragraph of --help about these files.
extern const char* const functor_file_help;

/// Reads "name=path". Throws BadInput.
FunctorText read_functor(const std::string& argument);

/// The two sides of "name=value"; throws BadInput, naming the option, when there are none.
std::pair<std::string, std::string> split_assignment(std::string_view option, const std::string& argument);

}  // namespace jit::tool
