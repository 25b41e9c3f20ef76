// The program of an append, and what a launch must know of it.
#pragma once

#include <jit/append.h>

#include "generator/program/program.h"

namespace jit {

/// Lanes for a row, as in the kernel.
int append_lanes(const AppendSpec& spec);

/// Requires: validate(spec) passes.
Program append_program(const AppendSpec& spec);

}  // namespace jit
