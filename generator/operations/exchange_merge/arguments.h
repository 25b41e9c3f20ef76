// From the tensors of an exchange and merge to the parameters of its kernel.
#pragma once

#include <jit/exchange_merge.h>

#include "templates/exchange_merge/params.cuh"

namespace jit {

/// Tiles that the call sends or receives, at most of these a block each; as many as `params` says the buffers have room for,
/// at most. Checks `arguments` against `spec` and fills `params`. 0 when there are no rows. Allocates nothing unless it
/// throws Error invalid_argument, whose field is the argument's name.
unsigned fill_params(const ExchangeMergeSpec& spec, const ExchangeMergeArguments& arguments,
                     ExchangeMergeParams& params);

}  // namespace jit
