// Arguments of a call of a quantizer, checked.
#pragma once

#include <cstddef>

#include <jit/quantize.h>

#include "templates/quantize/params.cuh"

namespace jit {

/// Sizes that a launch needs besides.
struct QuantizeSizes {
  std::size_t workspace_bytes = 0;
  std::size_t counter_bytes = 0;  ///< 0: blocks wait for nothing
  int pieces = 0;                 ///< of work; 0: there is nothing to do
};

/// Checks arguments and fills `params`, but for lag and counters; of a workspace that begins at 0. Throws Error
/// invalid_argument whose field is the argument's name.
QuantizeSizes fill_params(const QuantizeSpec& spec, const QuantizeArguments& arguments,
                          QuantizeParams& params);

/// Puts the workspace where it is.
void place_workspace(QuantizeParams& params, std::byte* workspace);

}  // namespace jit
