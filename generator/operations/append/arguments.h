// From the tensors of an append to the parameters of its kernel.
#pragma once

#include <jit/append.h>

#include "generator/operations/append/argument_table.h"
#include "generator/problem/known_call.h"
#include "templates/append/params.cuh"

namespace jit {

/// Checks `arguments` against `spec` and fills `params`, but for rows_per_block. Returns false when there is nothing to
/// do. Allocates nothing unless it throws Error invalid_argument, whose field is the argument's name.
bool fill_params(const AppendSpec& spec, const AppendArguments& arguments, BlockAppendParams& params);

/// The pointers in `params`, of arguments that passed their checks.
void set_pointers(const AppendSpec& spec, const AppendArguments& arguments, BlockAppendParams& params);

/// A call that passed its checks and has something to do.
struct KnownAppend {
  KnownAppend(const AppendSpec& spec, const AppendArguments& arguments, const BlockAppendParams& filled);

  KnownTensors<AppendArguments, append_table> tensors;
  BlockAppendParams params;
};

}  // namespace jit
