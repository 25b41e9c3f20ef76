// Costs that families share which split keys: merging of work tiles, and keys of lists.
#pragma once

#include <jit/spec.h>

#include "generator/problem/problem_shape.h"

namespace jit {

/// Clocks until a work tile of so many splits, of so many rows each, is merged. Where one block merges it
/// (templates/split_keys/merge_splits.cuh) it takes so many for each split. Where all of its blocks do
/// (templates/split_keys/merge_shares.cuh) each writes its split and reads as much from all splits: how many there
/// are makes no difference. An estimate, from what a multiprocessor gets from the L2 cache.
double merge_clocks(const AttentionSpec& spec, double rows, double splits, double clocks_of_split);

/// Keys that a tile of rows reads, at most. Of lists of varlen keys, whose average says nothing, those of eight entries at
/// least.
std::int64_t keys_to_read(const AttentionSpec& spec, const ProblemShape& shape);

}  // namespace jit
