// The program of a quantizer, and what a launch must know of it.
#pragma once

#include <string>

#include <jit/quantize.h>

#include "generator/program/program.h"
#include "templates/quantize_resident/params.cuh"

namespace jit {

/// Facts about one of q, k and v for a launch, as QuantizePlan has it in the kernel.
struct QuantizedTensorFacts {
  int columns;
  int chunk;       ///< tokens of a piece of work
  int row_bytes;   ///< of shared memory for these
  int statistics;  ///< floats that a piece of work leaves of its rows; 0: elements are rounded as they come
};
QuantizedTensorFacts quantized_tensor_facts(const QuantizeSpec& spec, QkvTensor tensor,
                                            bool keeps_rows = false);

/// Requires: validate(spec) passes.
Program quantize_program(const QuantizeSpec& spec);

/// Whether an architecture runs programs that keep rows.
bool can_keep_rows(Arch arch);
/// Why no program that keeps rows serves the spec; empty: one does.
std::string cannot_keep_rows(const QuantizeSpec& spec);
/// Shared memory of that program. Requires, as the next one: cannot_keep_rows(spec) is empty.
ResidentLayout resident_layout_of(const QuantizeSpec& spec);
Program resident_quantize_program(const QuantizeSpec& spec);

}  // namespace jit
