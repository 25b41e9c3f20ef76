// A program of one kernel, or of one and what runs before it, as a value: what writers of kernels hand to the compiler.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "runtime/source_file.h"

namespace jit {

/// A program ready to compile, and what a launch must know of it.
struct Program {
  std::string name;  ///< of the extern "C" kernel, readable in a profiler
  /// The name of a second kernel, which launches run before it; empty: there is none.
  std::string ahead = {};
  std::string source;                    ///< includes templates and `headers` only
  std::vector<SourceFile> headers = {};  ///< generated for this program, by names of their own
  int smem_bytes = 0;                    ///< dynamic shared memory; the program asserts the same
  int threads = 0;                       ///< per block
  int blocks_per_sm = 0;                 ///< for so many the assembler must find registers; 0: it is not told
  bool may_fuse = true;  ///< products and sums into multiply-adds that the source does not name
  int cluster = 1;       ///< blocks of a cluster, as the source says
  /// Facts for a listing of the cache about the kernel, by name ("spec", "config"). Decides nothing.
  std::vector<std::pair<std::string, std::string>> facts = {};
};

}  // namespace jit
