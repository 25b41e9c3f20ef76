// The sizes for which a pack's kernels are chosen.
#pragma once

#include <cstdint>
#include <vector>

#include <jit/pack.h>

#include "generator/problem/problem_shape.h"

namespace jit {

/// Powers of two up to the first that is at least `most`.
std::vector<std::int64_t> powers_of_two(std::int64_t most);

/// The largest sizes of each size class, so that every class has a kernel, and in between the sizes of common
/// models, so that most calls find their optimal kernel. There are at least as many keys as queries, unless
/// calls of the spec may have fewer.
std::vector<ProblemShape> pack_shapes(const AttentionSpec& spec, const PackSizes& sizes);

}  // namespace jit
