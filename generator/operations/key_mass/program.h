// The program of key masses.
#pragma once

#include <jit/key_mass.h>

#include "generator/program/program.h"

namespace jit {

/// The attention that a kernel's scores are those of: without what concerns values and o.
AttentionSpec scores_of(const KeyMassSpec& spec);

/// Requires: validate(spec) passes.
Program key_mass_program(const KeyMassSpec& spec);

}  // namespace jit
