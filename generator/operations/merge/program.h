// The program of a merge, and what a launch must know of it.
#pragma once

#include <vector>

#include <jit/merge.h>

#include "generator/program/program.h"
#include "templates/base/row_lanes.cuh"

namespace jit {

/// Lanes for a row of o, as in the kernel.
RowLanes merge_lanes(const MergeSpec& spec);

/// Whether a call of so many states is the second program's of merge_programs().
bool is_of_many_states(const MergeSpec& spec, unsigned states);

/// The program of every number of states, and where rows have few pieces one that is faster for many states. Requires:
/// validate(spec) passes.
std::vector<Program> merge_programs(const MergeSpec& spec);

}  // namespace jit
