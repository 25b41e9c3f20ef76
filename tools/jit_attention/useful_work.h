// How much of a problem's work the mask leaves: what throughput is counted in.
#pragma once

#include <map>
#include <optional>
#include <string>

#include <jit/host_tensor.h>

#include "problem.h"

namespace jit::tool {

/// The problem's tensors, whose memory stays the problem's.
std::map<std::string, HostTensor, std::less<>> host_tensors(const Problem& problem);

/// The share of (query, key) pairs that the mask keeps, from evenly spaced sampled queries; exact when all
/// queries fit the sample. Nothing when the mask contains text that the host cannot follow.
std::optional<double> mask_density(const Problem& problem);

/// Floating-point operations of the two matrix products over `share` of the pairs, or of the five of backward.
double useful_flops(const Problem& problem, double share, bool backward = false);

}  // namespace jit::tool
