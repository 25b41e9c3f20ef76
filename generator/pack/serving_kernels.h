// Kernels that packs for serving have beside the kernels that one call runs by itself.
#pragma once

#include <vector>

#include <jit/pack.h>

#include "generator/pack/kernel_build.h"
#include "generator/problem/problem_shape.h"

namespace jit {

/// Requests of a call that two kernels share, and a shape that the kernel for them is chosen by.
struct RequestShape {
  Requests requests;
  ProblemShape shape;
};

/// The largest sizes of each size class that mixed calls choose by, for both kinds of requests; none where no call of the
/// spec is mixed.
std::vector<RequestShape> mixed_shapes(const AttentionSpec& spec, const PackSizes& sizes);

/// Kernels that store new keys and values in caches of the spec, as they come and as `sizes` says, and that
/// merge its results. Nothing stores into varlen keys, which are no cache. Of rows that are keys and values
/// at once an append stores the columns that are values as v, and those behind them, which are rotated, as k.
std::vector<KernelBuild> of_operations(const AttentionSpec& spec, const PackSizes& sizes, Target target);

}  // namespace jit
