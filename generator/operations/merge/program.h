// The program of a merge, and the facts that its launch needs.
#pragma once

#include <jit/merge.h>

#include "generator/operations/operation.h"

namespace jit {

/// Rows of o that a block of each program merges, so that one grid fits all.
int merge_rows_per_block(const MergeSpec& spec);

/// The program that is fastest for a call with `states` states; that of two also wants fill_pair().
OperationProgram merge_program_for(const MergeSpec& spec, unsigned states);

/// The program for any number of states, one for two and, if rows have few pieces, one for many. Requires:
/// validate(spec) passes.
OperationPrograms merge_programs(const MergeSpec& spec);

}  // namespace jit
