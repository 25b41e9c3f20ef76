// bench --ladder matmul: times the matrix product's steps beside cuBLAS, or counts them on an emulated
// device.
#pragma once

#include <string>

#include "trace_files.h"

namespace CLI {
class App;
}  // namespace CLI

namespace jit::tool {

struct MatmulBench {
  int m = 0, n = 0, k = 0;  ///< 0: a size that the device multiplies quickly
  int splits = 0;           ///< in the last step; 0: enough to fill the device
  TraceFiles traces;        ///< of all launches, on an emulated device
};
void add_matmul_options(CLI::App& app, MatmulBench& options);

/// Throws BadInput, naming an option of `app` that was given but does not apply to the ladder: the matrix
/// product's if `is_matmul`, else attention's.
void check_ladder_options(const CLI::App& app, bool is_matmul);

/// Returns the exit status.
int bench_matmul(const MatmulBench& options, const std::string& device, int samples, bool as_json);

}  // namespace jit::tool
