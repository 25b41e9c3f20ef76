// Kernels that packs for serving contain in addition to those of single calls.
#pragma once

#include <vector>

#include <jit/pack.h>

#include "generator/pack/kernel_build.h"
#include "generator/problem/problem_shape.h"

namespace jit {

/// Requests that one kernel of a mixed call serves, and a shape by which it is chosen.
struct RequestShape {
  Requests requests;
  ProblemShape shape;
};

/// The largest sizes of each size class for mixed calls, for both kinds of requests; none if no call of the
/// spec is mixed.
std::vector<RequestShape> mixed_shapes(const AttentionSpec& spec, const PackSizes& sizes);

/// Kernels that append new keys and values to the spec's caches, unprocessed and as `sizes` specifies, and
/// that merge its results. None append to varlen keys, which are no cache. For rows that are keys and values
/// at once, an append stores the value columns as v and the rotated ones after them as k.
std::vector<KernelBuild> of_operations(const AttentionSpec& spec, const PackSizes& sizes, Target target);

}  // namespace jit
