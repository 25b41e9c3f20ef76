// The common part of the families of gradients of wide heads (templates/backward_wide).
#pragma once

#include <string>
#include <string_view>

#include "generator/kernels/backward_pass.h"
#include "generator/kernels/family.h"
#include "templates/backward/tensor_maps.cuh"

namespace jit {

struct KernelLaunch;

namespace backward_wide {

/// Buffers of a block.
struct Stages {
  int panels;
  int parts;
};

/// Why the family `name` has no gradients of the spec; empty: it has.
std::string rejection(const Case& problem, std::string_view name);

/// A block of queries, or of keys.
Footprint footprint(const AttentionSpec& spec, const Stages& stages, bool of_queries);

/// The program of one of the passes: `config_lines` have the fields of its config.
Program program(const BackwardPassText& pass, const AttentionSpec& spec, const Stages& stages,
                bool of_queries, std::string_view config_lines);

/// Clock cycles of so many blocks on a device, each of which multiplies `products` tiles of scores and as many columns as
/// head dims have with each of `steps` tiles.
double cycles(const Case& problem, const Stages& stages, double blocks, double steps, double columns);

/// The maps of a call's tensors, of which dense sequences take the first part, TensorMaps. Requires: there are queries or
/// keys.
SequenceMaps maps(const KernelLaunch& launch);

}  // namespace backward_wide
}  // namespace jit
