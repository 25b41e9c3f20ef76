// Tensors for measuring and checking forward candidates.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <jit/device.h>
#include <jit/device_buffer.h>
#include <jit/spec.h>

#include "generator/launch/stream_memory.h"
#include "generator/plan/plan.h"
#include "generator/program/program.h"
#include "generator/tuning/tuning_buffers.h"

namespace jit {

struct KernelStore;

/// The programs that fill the inputs and compute the reference.
std::vector<Program> forward_check_programs(const AttentionSpec& spec);

/// The spec of the same memory as dense sequences.
AttentionSpec dense_spec(AttentionSpec spec);

/// Random q, k, v of the problem's sizes, an output, and the reference's results for sampled rows. If lengths
/// are on the device, all sequences have the full length, or the average one if varlen. Pages are in order
/// and sinks are −inf, so that the memory also holds dense sequences, which the reference computes.
class ForwardBuffers : public TuningBuffers {
 public:
  /// `params` are the call's. The batch is reduced if the tensors, plus `more_entry_bytes` per batch entry,
  /// would exceed half of the free memory; throws Error driver_error if a single batch entry does.
  ForwardBuffers(KernelStore& store, const AttentionSpec& spec, const DeviceInfo& device,
                 const AttentionParams& params, CUstream stream, std::int64_t more_entry_bytes = 0);

  int batch() const override { return params_.batch; }
  void run(const Plan& plan, CUstream stream) const override;
  std::string check(const Plan& plan, CUstream stream) const override;

  /// Memory that kernels need in addition to the tensors.
  const StreamMemory& memory() const { return memory_; }
  const AttentionParams& params() const { return params_; }
  /// Parameters of the same memory as dense sequences.
  const AttentionParams& dense_params() const { return dense_; }

 private:
  void describe_sequences();
  void describe_scales();
  void describe_outputs();
  void let_keys_be_there();
  void describe_block_scales(DescaleParams& dense);
  const void* array_of(const void* host, std::size_t bytes);
  void fill_inputs(KernelStore& store, CUstream stream);
  void run_reference(KernelStore& store, CUstream stream);
  void give_scales();

  StreamMemory memory_;  // separate, so that it is freed with the buffers
  AttentionSpec spec_;
  DeviceInfo device_;
  AttentionParams params_;
  AttentionParams dense_;  // the same memory as dense sequences, for the reference
  DeviceBuffer q_, k_, v_, o_, lse_;
  DeviceBuffer o_scales_;  // per row, like lse, if o has 8-bit elements
  std::vector<DeviceBuffer> sequence_arrays_;
  std::vector<float> reference_o_;    // (rows, head_dim_v)
  std::vector<float> reference_lse_;  // (rows)
};

}  // namespace jit
