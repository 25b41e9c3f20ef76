// The program of masses of listed keys.
#pragma once

#include <jit/list_mass.h>

#include "generator/program/program.h"

namespace jit {

/// Requires: validate(spec) passes.
Program list_mass_program(const ListMassSpec& spec);

}  // namespace jit
