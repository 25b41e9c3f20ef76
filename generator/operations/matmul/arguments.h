// Converts the tensors of a matrix product to the parameters of its kernels.
#pragma once

#include <jit/matmul.h>

#include "templates/matmul/params.cuh"

namespace jit {

/// Throws Error invalid_argument, whose field is the argument's name.
MatmulParams matmul_params(const MatmulArguments& arguments, bool splits_k);

}  // namespace jit
