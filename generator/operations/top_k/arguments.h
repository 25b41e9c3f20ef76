// Converts the tensors of a call to the parameters of the top-k kernel.
#pragma once

#include <jit/top_k.h>

#include "templates/top_k/params.cuh"

namespace jit {

/// Checks `arguments` against `spec` and fills `params`. Returns whether there is something to write. Throws Error
/// invalid_argument, whose field is the argument's name.
bool fill_params(const TopKSpec& spec, const TopKArguments& arguments, TopKParams& params);

}  // namespace jit
