// bench --ladder matmul: the steps of the matrix product, timed beside cuBLAS, or counted on an emulated device.
#pragma once

#include <string>

#include "trace_files.h"

namespace CLI {
class App;
}  // namespace CLI

namespace jit::tool {

struct MatmulBench {
  int m = 0, n = 0, k = 0;  ///< 0: a size that the device multiplies in little time
  int splits = 0;           ///< of the last step; 0: as many as fill the device
  TraceFiles traces;        ///< of all launches, on an emulated device
};
void add_matmul_options(CLI::App& app, MatmulBench& options);

/// Throws BadInput that names an option of `app` that was given and is not for the ladder at hand, which is attention's
/// unless `is_matmul`.
void check_ladder_options(const CLI::App& app, bool is_matmul);

/// Returns the exit status.
int bench_matmul(const MatmulBench& options, const std::string& device, int samples, bool as_json);

}  // namespace jit::tool
