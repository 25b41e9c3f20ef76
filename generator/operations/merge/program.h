// The program of a merge, and what a launch must know of it.
#pragma once

#include <jit/merge.h>

#include "generator/program/program.h"
#include "templates/base/row_lanes.cuh"

namespace jit {

/// Lanes for a row of o, as in the kernel.
RowLanes merge_lanes(const MergeSpec& spec);

/// Requires: validate(spec) passes.
Program merge_program(const MergeSpec& spec);

}  // namespace jit
