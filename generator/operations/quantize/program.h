// The program of a quantiser, and what a launch must know of it.
#pragma once

#include <jit/quantize.h>

#include "generator/program/program.h"
#include "templates/quantize/params.cuh"

namespace jit {

/// What a launch must know of one of q, k and v, as QuantizePlan has it in the kernel.
struct QuantizedTensorFacts {
  int columns;
  int chunk;       ///< tokens of a piece of work
  int row_bytes;   ///< of shared memory for these
  int statistics;  ///< floats that a piece of work leaves of its rows; 0: elements are rounded as they come
};
QuantizedTensorFacts quantized_tensor_facts(const QuantizeSpec& spec, QkvTensor tensor);

/// Requires: validate(spec) passes.
Program quantize_program(const QuantizeSpec& spec);

}  // namespace jit
