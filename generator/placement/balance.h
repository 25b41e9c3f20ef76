// Swaps of granules between ranks until their loads are nearly equal.
#pragma once

#include <vector>

#include <jit/placement.h>

namespace jit {

/// Swaps runs of equally many granules between the most and the least loaded rank, until the largest load is
/// at most `tolerance` times the mean or no swap reduces it. Among suitable swaps, prefers the one with the
/// fewest copied keys. Deterministic.
void balance(const PlacementWork& work, int ranks, double tolerance, std::vector<int>& owners);

}  // namespace jit
