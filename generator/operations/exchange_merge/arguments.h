// Converts the tensors of an exchange and merge to the parameters of its kernel.
#pragma once

#include <jit/exchange_merge.h>

#include "templates/exchange_merge/params.cuh"

namespace jit {

/// Checks `arguments` against `spec` and fills `params`. Returns the number of tiles that the call sends or
/// receives, hence of blocks, limited by the capacity of the buffers; 0 without rows. Allocates only to throw
/// Error invalid_argument, whose field is the argument's name.
unsigned fill_params(const ExchangeMergeSpec& spec, const ExchangeMergeArguments& arguments,
                     ExchangeMergeParams& params);

}  // namespace jit
