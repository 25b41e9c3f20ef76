// The program that chooses the largest scores of each row.
#pragma once

#include <jit/top_k.h>

#include "generator/program/program.h"

namespace jit {

/// Requires: validate(spec) passes.
Program top_k_program(const TopKSpec& spec);

}  // namespace jit
