// Quantizer calls by the program that keeps rows in shared memory.
#pragma once

#include <string>

#include <jit/quantize.h>
#include <jit/stream.h>

#include "generator/launch/loaded_kernel.h"
#include "generator/launch/stream_memory.h"
#include "templates/quantize_resident/params.cuh"

namespace jit {

/// Why a launch on `sm_count` SMs cannot keep the rows of a call; empty if it can. `params` comes from
/// fill_params. All functions here require that cannot_keep_rows(spec) is empty.
std::string cannot_keep_rows(const QuantizeSpec& spec, const QuantizeParams& params, int sm_count);

/// Whether keeping rows is faster than reading them twice. Requires: it is possible.
bool gains_by_keeping_rows(const QuantizeSpec& spec, const QuantizeParams& params, int sm_count);

/// Launches the call with at most `blocks` co-resident blocks. Throws Error launch_failed, driver_error.
/// Requires: cannot_keep_rows is empty for `blocks` SMs.
void launch_resident(const StreamMemory& memory, const QuantizeSpec& spec, const QuantizeParams& params,
                     const LoadedKernel& kernel, int blocks, Stream stream);

}  // namespace jit
