// Converts the tensors of a call of unions to the parameters of its kernel.
#pragma once

#include <jit/key_union.h>

#include "templates/key_union/params.cuh"

namespace jit {

/// Checks `arguments` against `spec` and fills `params`. Returns the number of blocks, 0 if there is nothing
/// to write. Throws Error invalid_argument, whose field is the argument's name.
unsigned fill_params(const KeyUnionSpec& spec, const KeyUnionArguments& arguments, KeyUnionParams& params);

}  // namespace jit
