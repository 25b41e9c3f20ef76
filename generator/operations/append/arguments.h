// From the tensors of an append to the parameters of its kernel.
#pragma once

#include <jit/append.h>

#include "templates/append/params.cuh"

namespace jit {

/// Checks `arguments` against `spec` and fills `params`, but for rows_per_block. Returns false when there is nothing to
/// do. Allocates nothing unless it throws Error invalid_argument, whose field is the argument's name.
bool fill_params(const AppendSpec& spec, const AppendArguments& arguments, AppendParams& params);

}  // namespace jit
