// Converts the tensors of a list transposition to the parameters of its kernel.
#pragma once

#include <cstddef>

#include <jit/transpose_lists.h>

#include "templates/transpose_lists/params.cuh"

namespace jit {

/// Checks `arguments` and fills `params`, except for the step, and scratch memory that is not given. Returns
/// the bytes of the latter. Throws Error invalid_argument, whose field is the argument's name.
std::size_t fill_params(const TransposeListsArguments& arguments, TransposeListsParams& params);

/// Places scratch arrays in `memory`.
void place_scratch(TransposeListsParams& params, void* memory);

}  // namespace jit
