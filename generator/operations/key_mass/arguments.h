// From the tensors of a call of key masses to the parameters of its kernel.
#pragma once

#include <jit/key_mass.h>

#include "templates/key_mass/params.cuh"
#include "templates/key_mass_wgmma/params.cuh"

namespace jit {

/// Checks `arguments` against `spec` and fills `params`. Returns the blocks of the launch, 0 where there is nothing to
/// write. Throws Error invalid_argument, whose field is the argument's name.
unsigned fill_params(const KeyMassSpec& spec, const KeyMassArguments& arguments, KeyMassParams& params);

/// Fills the rest of `maps` behind fill_params of its `of_all`. Returns the blocks of a launch of the kernel by wgmma, 0
/// where TMA cannot map the call's tensors or there are no keys or queries.
unsigned fill_maps(const KeyMassSpec& spec, KeyMassMaps& maps);

}  // namespace jit
