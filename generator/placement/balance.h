// Swaps of granules between ranks until their loads are nearly equal.
#pragma once

#include <vector>

#include <jit/placement.h>

namespace jit {

/// Swaps runs of equally many granules between the rank with the largest load and that with the least, until the largest
/// is at most `tolerance` times the mean or no swap brings it down. Of swaps that serve, the one by which the fewest keys
/// have to be copied. Deterministic.
void balance(const PlacementWork& work, int ranks, double tolerance, std::vector<int>& owners);

}  // namespace jit
