// The program that chooses the largest scores of each row.
#pragma once

#include <jit/top_k.h>

#include "generator/program/program.h"

namespace jit {

/// The program in which so many blocks share a row. Requires: validate(spec) passes; sm_90 and later for more than one.
Program top_k_program(const TopKSpec& spec, int cluster = 1);

}  // namespace jit
