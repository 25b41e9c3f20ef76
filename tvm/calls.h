// Structs of jit/c.h, from named values.
#pragma once

#include <list>
#include <string>
#include <vector>

#include <jit/c.h>

#include "tvm/values.h"

namespace jit::tvm {

/// A call's arguments, with the arrays that they point to.
template <class Arguments>
struct Call {
  Arguments arguments = {};
  std::list<std::string> names;  ///< of tensors and d_tensors
  std::vector<jit_named_tensor> tensors, d_tensors;
  std::vector<jit_partial_state> parts;

  Call() { arguments.size = sizeof(arguments); }
};

// Each throws Error invalid_argument for unknown names and for values of another kind.
Call<jit_forward_arguments> forward_call(const GivenCall& given);
Call<jit_backward_arguments> backward_call(const GivenCall& given);
Call<jit_append_arguments> append_call(const GivenCall& given);
Call<jit_merge_arguments> merge_call(const GivenCall& given);

}  // namespace jit::tvm
