// Calls of a quantizer by the program that keeps rows.
#pragma once

#include <string>

#include <jit/quantize.h>
#include <jit/stream.h>

#include "generator/launch/loaded_kernel.h"
#include "generator/launch/stream_memory.h"
#include "templates/quantize_resident/params.cuh"

namespace jit {

/// Why no launch on `sm_count` multiprocessors can keep the rows of a call; empty: one can. `params` is what
/// fill_params has made of it. Requires, as all here: cannot_keep_rows(spec) is empty.
std::string cannot_keep_rows(const QuantizeSpec& spec, const QuantizeParams& params, int sm_count);

/// Whether that is faster than to read them twice. Requires: it can be.
bool gains_by_keeping_rows(const QuantizeSpec& spec, const QuantizeParams& params, int sm_count);

/// Puts the call on `stream`, by at most `blocks` blocks, which fit on the device at once. Throws Error launch_failed,
/// driver_error. Requires: cannot_keep_rows of as many multiprocessors is empty.
void launch_resident(const StreamMemory& memory, const QuantizeSpec& spec, const QuantizeParams& params,
                     const LoadedKernel& kernel, int blocks, Stream stream);

}  // namespace jit
