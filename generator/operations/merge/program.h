// The program of a merge, and the facts that its launch needs.
#pragma once

#include <jit/merge.h>

#include "generator/operations/operation.h"

namespace jit {

/// Rows of o that a block of either program merges, so that one grid fits both.
int merge_rows_per_block(const MergeSpec& spec);

/// Whether a call with `states` states uses the second program.
bool has_few_states(unsigned states);

/// The program for any number of states, and the one that is faster for few. Requires: validate(spec) passes.
OperationPrograms merge_programs(const MergeSpec& spec);

}  // namespace jit
