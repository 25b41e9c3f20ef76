// What it takes that blocks merge the units that they share, to cost models.
#pragma once

#include <jit/spec.h>

namespace jit {

/// Clocks until a unit of so many parts, of so many rows each, is merged. Where one block merges it
/// (templates/split_keys/merge_parts.cuh) it takes so many for each part. Where all of its blocks do
/// (templates/split_keys/merge_shares.cuh) each writes its part and reads as much from all parts: how many there are makes no
/// difference. An estimate, from what a multiprocessor gets from the L2 cache.
double merge_clocks(const AttentionSpec& spec, double rows, double parts, double clocks_of_part);

}  // namespace jit
