// One file of source text, as compilers take it and templates store it.
#pragma once

#include <string>

namespace jit {

/// A text that a program includes by name.
struct SourceFile {
  std::string name;  ///< as written in the #include
  std::string text;
};

}  // namespace jit
