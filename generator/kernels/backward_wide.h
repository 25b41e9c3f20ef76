// Shared by the families of gradients of wide heads (templates/backward_wide).
#pragma once

#include <string>
#include <string_view>

#include "generator/kernels/backward_pass.h"
#include "generator/kernels/family.h"
#include "templates/backward/tensor_maps.cuh"

namespace jit {

struct KernelLaunch;

namespace backward_wide {

/// Numbers of buffers of a block.
struct Stages {
  int panels;
  int parts;
};

/// Why the family `name` cannot compute the spec's gradients; empty if it can.
std::string rejection(const Case& problem, std::string_view name);

/// Resources of a block of queries, or of keys.
Footprint footprint(const AttentionSpec& spec, const Stages& stages, bool of_queries);

/// The program of a pass; `config_lines` declare the fields of its config.
Program program(const BackwardPassText& pass, const AttentionSpec& spec, const Stages& stages,
                bool of_queries, std::string_view config_lines);

/// Clock cycles of `blocks` blocks of `steps` steps, each of which multiplies tiles of `columns` columns in
/// all.
double cycles(const Case& problem, const Stages& stages, double blocks, double steps, double columns);

/// The tensor maps of a call; dense sequences use their first part, TensorMaps. Requires: there are queries
/// or keys.
SequenceMaps maps(const KernelLaunch& launch);

}  // namespace backward_wide
}  // namespace jit
