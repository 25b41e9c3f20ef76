// Converts the tensors of an append to the parameters of its kernel.
#pragma once

#include <jit/append.h>

#include "generator/operations/append/argument_table.h"
#include "generator/problem/known_call.h"
#include "templates/append/params.cuh"

namespace jit {

/// Checks `arguments` against `spec` and fills `params`, except rows_per_block. Returns false if there is no
/// work. Allocates only to throw Error invalid_argument, whose field is the argument's name.
bool fill_params(const AppendSpec& spec, const AppendArguments& arguments, BlockAppendParams& params);

/// Sets the pointers in `params`. Requires: the arguments have passed their checks.
void set_pointers(const AppendSpec& spec, const AppendArguments& arguments, BlockAppendParams& params);

/// A checked call with work to do, to recognize similar ones.
struct KnownAppend {
  KnownAppend(const AppendSpec& spec, const AppendArguments& arguments, const BlockAppendParams& filled);

  KnownTensors<AppendArguments, append_table> tensors;
  BlockAppendParams params;
};

}  // namespace jit
