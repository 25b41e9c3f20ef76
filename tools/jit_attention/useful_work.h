// The work that a mask leaves, the unit of throughput.
#pragma once

#include <map>
#include <optional>
#include <string>

#include <jit/host_tensor.h>

#include "problem.h"

namespace jit::tool {

/// Tensors of the problem, which keeps their memory.
std::map<std::string, HostTensor, std::less<>> host_tensors(const Problem& problem);

/// The share of (query, key) pairs that the mask keeps, from evenly spaced sampled queries; exact when all
/// queries fit the sample. Nothing when the host cannot evaluate the mask's text.
std::optional<double> mask_density(const Problem& problem);

/// FLOPs of the two matrix products, or backward's five, over `share` of the pairs.
double useful_flops(const Problem& problem, double share, bool backward = false);

}  // namespace jit::tool
