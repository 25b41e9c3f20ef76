// Converts the tensors of a call of list masses to the parameters of its kernel.
#pragma once

#include <jit/list_mass.h>

#include "templates/list_mass/params.cuh"

namespace jit {

/// Checks `arguments` against `spec` and fills `params`. Returns the number of blocks, 0 if there is nothing
/// to write. Throws Error invalid_argument, whose field is the argument's name.
unsigned fill_params(const ListMassSpec& spec, const ListMassArguments& arguments, ListMassParams& params);

}  // namespace jit
