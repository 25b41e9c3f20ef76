// Which config to use when nothing was measured, and which to measure first. Pure functions: a cost model, no
// device.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "generator/kernels/config_space.h"

namespace jit {

/// The run-time sizes of one call.
struct ProblemShape {
  std::int64_t batch = 1;
  std::int64_t heads_q = 1;
  std::int64_t seqlen_q = 1;
  std::int64_t seqlen_kv = 1;
  bool tma = true;  ///< whether TMA can serve the tensors' strides (tensor_maps.h)

  bool operator==(const ProblemShape&) const = default;
};

/// The shape that is assumed when a kernel is wanted before any call: enough work for every multiprocessor.
ProblemShape typical_shape(const DeviceLimits& limits);

/// Clock cycles that the model expects, relative to other configs of the same problem.
double estimated_cycles(const AttentionSpec& spec, const KernelConfig& config, const ProblemShape& shape,
                        const DeviceLimits& limits);

/// The legal configs of the search grid, the most promising first; equal estimates keep the grid's order.
/// Throws Error no_valid_config when there is none, with the reason of a typical one.
std::vector<KernelConfig> ranked_configs(const AttentionSpec& spec, const ProblemShape& shape,
                                         const DeviceLimits& limits);

}  // namespace jit
