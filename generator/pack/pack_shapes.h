// The sizes that kernels of a pack are chosen for.
#pragma once

#include <cstdint>
#include <vector>

#include <jit/pack.h>

#include "generator/problem/problem_shape.h"

namespace jit {

/// 1, 2, 4 … up to the first that is `most` or more.
std::vector<std::int64_t> powers_of_two(std::int64_t most);

/// The largest sizes of each size class, so that there is a kernel for every class; and between them the sizes of
/// whole models, so that most calls find the very kernel that is chosen for theirs. Keys are as many as queries or
/// more, unless a call of the spec may have fewer.
std::vector<ProblemShape> pack_shapes(const AttentionSpec& spec, const PackSizes& sizes);

}  // namespace jit
