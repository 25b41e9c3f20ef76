// The source program of one kernel, possibly with a second one that runs before it, as a value for the
// compiler.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "runtime/source_file.h"

namespace jit {

/// A program, and the facts that launches need.
struct Program {
  std::string name;  ///< of the extern "C" kernel, readable in a profiler
  /// The name of a second kernel that launches run first; empty if none.
  std::string ahead = {};
  std::string source;                    ///< includes templates and `headers` only
  std::vector<SourceFile> headers = {};  ///< generated for this program, with unique names
  int smem_bytes = 0;                    ///< dynamic shared memory; the program asserts the same
  int threads = 0;                       ///< per block
  int blocks_per_sm = 0;                 ///< for launch bounds; 0: unspecified
  bool may_fuse = true;  ///< whether the compiler may contract products and sums to multiply-adds
  int cluster = 1;       ///< blocks per cluster, as in the source
  /// Facts about the kernel for cache listings, by name ("spec", "config"); without effect.
  std::vector<std::pair<std::string, std::string>> facts = {};
};

}  // namespace jit
