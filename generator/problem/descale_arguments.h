// From the scales of a call to the parameter of kernels that read keys and values of 8 bits.
#pragma once

#include <jit/attention.h>

#include "templates/base/descale_params.cuh"

namespace jit {

/// Requires: the arguments were checked. Nothing where the spec has no keys of 8 bits.
DescaleParams descale_params(const AttentionSpec& spec, const AttentionArguments& arguments);

}  // namespace jit
