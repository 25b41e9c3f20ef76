// Calls of a quantiser by the program that keeps rows.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include <jit/quantize.h>

#include "templates/quantize/kept_params.cuh"

namespace jit {

/// What a launch needs besides.
struct KeptSizes {
  int pieces = 0;  ///< of work
  std::size_t memory_bytes = 0;
};

/// Why no launch on `sm_count` multiprocessors can keep the rows of a call; empty: one can. `params` is what fill_params has
/// made of it. Requires, as all here: cannot_keep_rows(spec) is empty.
std::string cannot_keep_rows(const QuantizeSpec& spec, const QuantizeParams& params, int sm_count);

/// Whether that is faster than to read them twice. Requires: it can be.
bool gains_by_keeping_rows(const QuantizeSpec& spec, const QuantizeParams& params, int sm_count);

/// The same call for a grid of `blocks` blocks, in memory that begins at 0.
KeptParams kept_params(const QuantizeSpec& spec, const QuantizeParams& params, int blocks, KeptSizes& sizes);

/// Puts the memory where it is.
void place_kept_memory(KeptParams& params, std::span<std::byte> memory);

}  // namespace jit
