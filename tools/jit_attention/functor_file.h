// Masks and scores in files, in the format of jit/functor_file.h.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include <jit/functor_file.h>

namespace jit::tool {

/// The --help paragraph about these files.
extern const char* const functor_file_help;

/// Reads "name=path". Throws BadInput.
FunctorText read_functor(const std::string& argument);

/// Both sides of "name=value"; throws BadInput, naming the option, unless it has two.
std::pair<std::string, std::string> split_assignment(std::string_view option, const std::string& argument);

}  // namespace jit::tool
