// Tensors for measuring and checking backward candidates.
#pragma once

#include <string>
#include <vector>

#include <jit/device.h>
#include <jit/device_buffer.h>
#include <jit/spec.h>

#include "generator/plan/plan.h"
#include "generator/program/program.h"
#include "generator/tuning/forward_buffers.h"
#include "generator/tuning/tuning_buffers.h"
#include "templates/base/gradient_params.cuh"

namespace jit {

/// The programs that fill inputs and compute references.
std::vector<Program> backward_check_programs(const AttentionSpec& spec);

/// The forward tensors with a forward kernel's checked outputs, a random do, gradients, and the reference's
/// results for sampled rows.
class BackwardBuffers : public TuningBuffers {
 public:
  /// Like ForwardBuffers. `spec` has no sinks.
  BackwardBuffers(KernelStore& store, const AttentionSpec& spec, const DeviceInfo& device,
                  const AttentionParams& params, CUstream stream);

  int batch() const override { return forward_.batch(); }
  void run(const Plan& plan, CUstream stream) const override;
  std::string check(const Plan& plan, CUstream stream) const override;

 private:
  // Sampled rows of queries or of keys, for which there is a reference.
  struct Sample {
    std::int64_t count = 0, heads = 0, length = 0, total = 0;
  };
  Sample sample_of(std::int64_t heads, std::int64_t length) const;

  void compute_outputs(KernelStore& store, CUstream stream);
  void run_reference(KernelStore& store, CUstream stream);
  std::string compare(const char* name, const DeviceBuffer& tensor, const TensorStrides& strides,
                      const Sample& sample, const std::vector<float>& expected, CUstream stream) const;

  AttentionSpec spec_;
  DeviceInfo device_;
  ForwardBuffers forward_;
  DeviceBuffer d_o_, dq_, dk_, dv_;
  GradientParams gradients_ = {}, dense_gradients_ = {};
  Sample queries_, keys_;
  std::vector<float> reference_dq_, reference_dk_, reference_dv_;
};

}  // namespace jit
