// The structs of jit/c.h, from values by name.
#pragma once

#include <list>
#include <string>
#include <vector>

#include <jit/c.h>

#include "tvm/values.h"

namespace jit::tvm {

/// Arguments of a call, and the arrays that they point to.
template <class Arguments>
struct Call {
  Arguments arguments = {};
  std::list<std::string> names;  ///< of tensors and d_tensors
  std::vector<jit_named_tensor> tensors, d_tensors;
  std::vector<jit_partial_state> parts;

  Call() { arguments.size = sizeof(arguments); }
};

// Each throws Error invalid_argument for a name that the call does not have, and for a value of another kind.
Call<jit_forward_arguments> forward_call(const GivenCall& given);
Call<jit_backward_arguments> backward_call(const GivenCall& given);
Call<jit_append_arguments> append_call(const GivenCall& given);
Call<jit_merge_arguments> merge_call(const GivenCall& given);

}  // namespace jit::tvm
