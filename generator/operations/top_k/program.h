// The program that selects the largest scores of each row.
#pragma once

#include <jit/top_k.h>

#include "generator/program/program.h"

namespace jit {

/// The program in which `cluster` blocks share a row, more than one from sm_90 on. Requires: validate(spec)
/// passes.
Program top_k_program(const TopKSpec& spec, int cluster = 1);

}  // namespace jit
