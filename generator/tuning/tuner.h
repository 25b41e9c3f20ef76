// Finding the fastest config for a problem on a GPU: compile the most promising candidates in parallel, check
// each against a reference, measure them as they will run, choose deterministically.
#pragma once

#include <jit/device.h>
#include <jit/kernel_config.h>
#include <jit/spec.h>
#include <jit/tuning.h>

#include "templates/base/params.cuh"

namespace jit {

struct ContextState;

/// What is tuned: a spec at one size on one device. The tensors of mask and score are the caller's own, since
/// their contents decide which tiles are computed; q, k, v and o are the tuner's, filled with random numbers.
struct TuningProblem {
  AttentionSpec spec;
  DeviceInfo device;
  AttentionParams params;  ///< of the call that wants a kernel
};

/// At most `settings.tuning_seconds`, and half of the device's free memory. `exhaustive` takes every config
/// of the grid for a candidate, and as much time as that needs. A candidate that fails to compile, to load,
/// to run or to be right drops out and is named in the log. Throws what the cost model's own config throws.
TuningResult tune(ContextState& context, const TuningProblem& problem, bool exhaustive);

}  // namespace jit
