// The program of an append, and the facts that its launch needs.
#pragma once

#include <jit/append.h>

#include "generator/program/program.h"

namespace jit {

/// Lanes per row, as in the kernel.
int append_lanes(const AppendSpec& spec);

/// Requires: validate(spec) passes.
Program append_program(const AppendSpec& spec);

}  // namespace jit
