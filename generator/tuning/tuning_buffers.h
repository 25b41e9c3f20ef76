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

/// Whether a call can be measured: not one whose mask or score reads a tensor with a row for each row of ragged q, because
/// what is measured lies elsewhere.
bool can_time(const AttentionSpec& spec);

/// q, k, v of the problem's sizes with random contents, an output, and the reference's answer for a sample of
/// rows. Where lengths are on the device, all sequences are equally long: as long as there is room for, on the average
/// where they are ragged. Pages lie in order, and sinks are −inf. So the same memory is that of dense sequences, which the
/// reference computes. When the tensors would take more than half of the free memory, the batch is cut; when a single
/// batch entry is still too large, throws Error driver_error.
class TuningBuffers {
 public:
  TuningBuffers(ContextState& context, const TuningProblem& problem, CUstream stream);

  const AttentionParams& params() const { return params_; }
  /// Of a spec with dropout: a rate and a seed of its own.
  const DropoutParams& dropout() const { return dropout_; }
  /// Of a spec whose keys have scales of their own.
  const DescaleParams& descale() const { return descale_; }

  /// Runs the plan on a poisoned output and compares the sampled rows. Returns what is wrong, empty when
  /// nothing is.
  std::string check(const Plan& plan, CUstream stream) const;

 private:
  void describe_sequences();
  void describe_scales();
  const void* array_of(const void* host, std::size_t bytes);
  void fill_inputs(ContextState& context, CUstream stream);
  void run_reference(ContextState& context, CUstream stream);

  const StreamMemory& memory_;
  AttentionSpec spec_;
  DeviceInfo device_;
  AttentionParams params_;
  AttentionParams dense_;  // the same memory as dense sequences, for the reference
  DropoutParams dropout_ = {};
  DescaleParams descale_ = {}, dense_descale_ = {};
  DeviceBuffer q_, k_, v_, o_, lse_;
  std::vector<DeviceBuffer> sequence_arrays_;
  std::vector<float> reference_o_;    // (rows, head_dim_v)
  std::vector<float> reference_lse_;  // (rows)
};

}  // namespace jit
