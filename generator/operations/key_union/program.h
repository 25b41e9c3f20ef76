// The program of unions of lists.
#pragma once

#include <jit/key_union.h>

#include "generator/program/program.h"

namespace jit {

/// Requires: validate(spec) passes.
Program key_union_program(const KeyUnionSpec& spec);

}  // namespace jit
