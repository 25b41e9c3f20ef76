// The program of a merge, and the facts that its launch needs.
#pragma once

#include <vector>

#include <jit/merge.h>

#include "generator/program/program.h"
#include "templates/base/row_lanes.cuh"

namespace jit {

/// Lanes per row of o, as in the kernel.
RowLanes merge_lanes(const MergeSpec& spec);

/// Whether a call with `states` states uses the second program of merge_programs().
bool is_of_many_states(const MergeSpec& spec, unsigned states);

/// Blocks of one of merge_programs() that an SM holds; as many merge all rows in turns.
int merge_blocks_per_sm(bool many);

/// The program for any number of states and, if rows have few pieces, one that is faster for many. Requires:
/// validate(spec) passes.
std::vector<Program> merge_programs(const MergeSpec& spec);

}  // namespace jit
