// From the arguments of a block mask to the parameters of its kernel.
#pragma once

#include <jit/block_mask.h>

#include "templates/block_mask/params.cuh"

namespace jit {

/// Checks `arguments` against `spec` and fills `params`. Returns the blocks of the grid; 0: there is nothing to write.
/// Throws Error invalid_argument, whose field is the argument's name.
unsigned fill_params(const BlockMaskSpec& spec, const BlockMaskArguments& arguments, BlockMaskParams& params);

}  // namespace jit
