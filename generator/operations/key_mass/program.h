// The program of key masses.
#pragma once

#include <jit/key_mass.h>

#include "generator/program/program.h"

namespace jit {

/// Requires: validate(spec) passes.
Program key_mass_program(const KeyMassSpec& spec);

}  // namespace jit
