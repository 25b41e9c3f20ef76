// The programs of the steps of the matrix product.
#pragma once

#include <cstddef>
#include <string_view>

#include <jit/matmul.h>

#include "generator/program/program.h"

namespace jit {

/// Index of a step in matmul_ladder(). Throws Error invalid_argument if no step has this name.
std::size_t matmul_step_index(std::string_view name);

bool splits_k(std::size_t step);

Program matmul_program(std::size_t step);
/// The kernel that sums the splits of split-K.
Program sum_splits_program();

}  // namespace jit
