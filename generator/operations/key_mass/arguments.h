// From the tensors of a call of key masses to the parameters of its kernel.
#pragma once

#include <jit/key_mass.h>

#include "templates/key_mass/params.cuh"
#include "templates/key_mass_wgmma/params.cuh"

namespace jit {

/// Checks `arguments` against `spec` and fills `params`. Returns the number of blocks, 0 if there is nothing
/// to write. Throws Error invalid_argument, whose field is the argument's name.
unsigned fill_params(const KeyMassSpec& spec, const KeyMassArguments& arguments, KeyMassParams& params);

/// Fills `maps` after fill_params has filled its `of_all`. Returns the number of blocks of the wgmma kernel;
/// 0 if TMA cannot map the tensors, or there are no keys or queries.
unsigned fill_maps(const KeyMassSpec& spec, KeyMassMaps& maps);

}  // namespace jit
