// The program of key masses.
#pragma once

#include <jit/key_mass.h>

#include "generator/program/program.h"

namespace jit {

/// Requires: validate(spec) passes.
Program key_mass_program(const KeyMassSpec& spec);

/// The program for sm_90a and tensors that TMA can map. Requires: validate(spec) passes, rows are aligned to 16
/// bytes, and has_mass_boxes(spec.attention.page_size).
Program key_mass_wgmma_program(const KeyMassSpec& spec);

}  // namespace jit
