// The tensors that candidates are measured and checked on.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <jit/device_buffer.h>

#include "generator/launch/plan.h"
#include "generator/program/program.h"
#include "generator/tuning/tuner.h"

namespace jit {

/// The programs that fill the inputs and compute the reference, for whoever compiles them ahead.
std::vector<Program> check_programs(const AttentionSpec& spec);

/// q, k, v of the problem's sizes with random contents, an output, and the reference's answer for a sample of
/// rows. When the tensors would take more than half of the free memory, the batch is cut; when a single
/// batch entry is still too large, throws Error driver_error.
class TuningBuffers {
 public:
  TuningBuffers(ContextState& context, const TuningProblem& problem, CUstream stream);

  const AttentionParams& params() const { return params_; }

  /// Runs the plan on a poisoned output and compares the sampled rows. Returns what is wrong, empty when
  /// nothing is.
  std::string check(const Plan& plan, CUstream stream) const;

 private:
  void fill_inputs(ContextState& context, CUstream stream);
  void run_reference(ContextState& context, CUstream stream);

  const StreamMemory& memory_;
  AttentionSpec spec_;
  DeviceInfo device_;
  AttentionParams params_;
  DeviceBuffer q_, k_, v_, o_, lse_;
  std::vector<float> reference_o_;    // (rows, head_dim_v)
  std::vector<float> reference_lse_;  // (rows)
};

}  // namespace jit
