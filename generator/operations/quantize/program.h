// The program of a quantizer, and the facts that its launch needs.
#pragma once

#include <string>

#include <jit/arch.h>
#include <jit/quantize.h>

#include "generator/program/program.h"
#include "templates/quantize_resident/params.cuh"

namespace jit {

/// Facts about q, k or v for a launch, as in the kernel's QuantizePlan.
struct QuantizedTensorFacts {
  int columns;
  int chunk;       ///< tokens per piece of work
  int row_bytes;   ///< of shared memory per token
  int statistics;  ///< floats that a piece stores about its rows; 0: rounded without statistics
};
QuantizedTensorFacts quantized_tensor_facts(const QuantizeSpec& spec, QkvTensor tensor,
                                            bool keeps_rows = false);

/// Requires: validate(spec) passes.
Program quantize_program(const QuantizeSpec& spec);

/// Whether an architecture can run programs that keep rows in shared memory.
bool can_keep_rows(Arch arch);
/// Why no such program supports the spec; empty if one does.
std::string cannot_keep_rows(const QuantizeSpec& spec);
/// Its shared memory layout. Requires: cannot_keep_rows(spec) is empty, here and below.
ResidentLayout resident_layout_of(const QuantizeSpec& spec);
Program resident_quantize_program(const QuantizeSpec& spec);

}  // namespace jit
