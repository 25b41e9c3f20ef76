// What it takes that blocks merge units that they share, to cost models.
#pragma once

namespace jit {

/// Clocks that the blocks of a unit take until its parts are merged (templates/split_keys/merge_parts.cuh), where each of so
/// many rows has so many columns of O. Each block writes its part and reads as much from all parts: how many there are makes
/// no difference. An estimate, from what a multiprocessor gets from the L2 cache.
double merge_clocks(double rows, double head_dim_v);

}  // namespace jit
