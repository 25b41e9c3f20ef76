// From the tensors of a call that transposes lists to the parameters of its kernel.
#pragma once

#include <cstddef>

#include <jit/transpose_lists.h>

#include "templates/transpose_lists/params.cuh"

namespace jit {

/// Checks `arguments` and fills `params`, but for the step, and for scratch memory where none is given. Returns the bytes of
/// that. Throws Error invalid_argument, whose field is the argument's name.
std::size_t fill_params(const TransposeListsArguments& arguments, TransposeListsParams& params);

/// Places what is scratch in so much memory.
void place_scratch(TransposeListsParams& params, void* memory);

}  // namespace jit
