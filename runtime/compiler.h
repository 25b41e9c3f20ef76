// Compiles CUDA C++ to a cubin with NVRTC: values in, values out. Thread safe; compiles run concurrently.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <jit/arch.h>

#include <jit/resource_usage.h>
#include "runtime/nvrtc_library.h"
#include "runtime/source_file.h"

namespace jit {

struct CompileRequest {
  std::string name;    ///< of the program: an absolute pseudo-path, e.g. "/jit-attention/kernel.cu"
  std::string source;  ///< CUDA C++
  std::vector<SourceFile> headers;   ///< files that the source may include; the file system is never searched
  Arch arch;                         ///< compile target
  std::vector<std::string> options;  ///< after base_options(arch)
  std::string kernel;  ///< entry whose resources are reported; empty: the largest figures of all entries
};

struct CompileResult {
  std::vector<std::byte> cubin;
  std::string ptx;
  std::string log;                    ///< complete log of the compiler and of ptxas
  std::vector<std::string> warnings;  ///< compiler warnings, located like errors: "mask:3: warning #177-D: …"
  ResourceUsage resources;            ///< with ptxas remarks
  double milliseconds = 0;            ///< wall time
};

/// The options of every compile, in order. Part of cache keys.
std::vector<std::string> base_options(Arch arch);

/// Compiles to a cubin. Throws Error compile_failed with the whole log, preceded by locations in the user's
/// text ("mask:3: error: …", also for inline PTX), and the source; Error nvrtc_unavailable if NVRTC cannot be
/// opened. A process forked while another thread was compiling throws Error compile_failed at once.
CompileResult compile(const NvrtcLocation& location, const CompileRequest& request);

/// Compiles to PTX only, without ptxas: `cubin` is empty, `resources` are unknown. Errors as above.
CompileResult compile_to_ptx(const NvrtcLocation& location, const CompileRequest& request);

}  // namespace jit
