// Checks the arguments of a quantizer call.
#pragma once

#include <cstddef>

#include <jit/quantize.h>

#include "templates/quantize/params.cuh"

namespace jit {

/// Further sizes that a launch needs.
struct QuantizeSizes {
  std::size_t workspace_bytes = 0;
  std::size_t counter_bytes = 0;  ///< 0: blocks do not wait
  int pieces = 0;                 ///< pieces of work; 0: nothing to do
};

/// Checks arguments and fills `params`, except lag and counters, with offsets for workspace addresses. Throws
/// Error invalid_argument, whose field is the argument's name.
QuantizeSizes fill_params(const QuantizeSpec& spec, const QuantizeArguments& arguments,
                          QuantizeParams& params);

/// Adds the workspace's address to offsets.
void place_workspace(QuantizeParams& params, std::byte* workspace);

}  // namespace jit
