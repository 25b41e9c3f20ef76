// Costs shared by split-KV families: merging partial results, and keys of lists.
#pragma once

#include <jit/spec.h>

#include "generator/problem/problem_shape.h"

namespace jit {

/// Clocks to merge a work tile of `splits` splits of `rows` rows. A single merging block
/// (templates/split_keys/merge_splits.cuh) takes `clocks_of_split` per split. If all blocks merge
/// (templates/split_keys/merge_shares.cuh), each writes its split and reads as much, for any number of
/// splits; estimated by an SM's L2 bandwidth.
double merge_clocks(const AttentionSpec& spec, double rows, double splits, double clocks_of_split);

/// The most keys that a tile of rows reads; for lists of varlen keys at least eight list entries, since an
/// average length does not apply.
std::int64_t keys_to_read(const AttentionSpec& spec, const ProblemShape& shape);

}  // namespace jit
