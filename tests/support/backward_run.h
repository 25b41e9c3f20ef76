// One backward problem on a device, beside what fp64 on the CPU makes of it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <jit/attention.h>
#include <jit/device_buffer.h>

#include "generator/plan/backward_plan.h"
#include "tests/support/attention_case.h"
#include "tests/support/attention_gradients.h"
#include "tests/support/device_tensor.h"
#include "tests/support/host_functors.h"

namespace jit::testing {

/// Inputs are random; o and lse are those of fp64, rounded; what a mask or score reads is random, too. Memory between
/// rows, and of the gradients, is poison.
class BackwardRun {
 public:
  explicit BackwardRun(const AttentionCase& wanted);

  /// Views of the device's tensors; valid as long as this object.
  BackwardArguments arguments(bool deterministic = false) const;
  void poison_gradients();
  /// Gives the device other random numbers than those that `check` knows.
  void upload_rng_state(std::span<const std::uint64_t, 2> seed_and_offset) const;
  /// Multiplies what do was at first.
  void scale_do(double factor);
  /// The elements of one of d_tensors, from the device.
  std::vector<double> numbers_of(const std::string& name);
  /// Computes the gradients by kernels of these configs, on the current device. Throws Error, for a config that is not
  /// legal, too.
  void compute(const Context& context, const KernelConfig& dq, const KernelConfig& dkv) const;
  /// Computes gradients in one pass.
  void compute(const Context& context, const KernelConfig& config) const;
  /// All bytes of the gradients and of what lies between their rows, from the device.
  std::vector<std::uint8_t> gradients();
  /// Errors of the gradients on the device; empty: none.
  std::string check();
  /// The largest error that `check` found, over what is allowed there.
  double error_ratio() const { return error_ratio_; }
  /// Errors of o and lse of the forward pass, by a kernel of this config if there is one.
  std::string check_forward(const Context& context, const std::optional<KernelConfig>& config) const;

 private:
  void run(const Context& context, const Plan& plan) const;
  DeviceTensor operand(int seqlen, int heads, int columns) const;
  std::vector<DeviceTensor*> written();
  /// A score that counts, and the gradient of what the score function makes of it.
  struct SeenScore {
    int b, h, q, k;
    double raw, gradient;
  };
  /// By difference quotients of the score.
  struct Sums {
    std::vector<double> values;
    double largest_magnitude = 0;  ///< of Σ |addend|, which tells how much may cancel
  };
  Sums tensor_gradient(const std::string& name, const std::vector<SeenScore>& scores) const;

  AttentionCase case_;
  reference::GradientProblem problem_;
  std::shared_ptr<const reference::FunctorProblem> functors_;
  DeviceTensor q_, k_, v_, d_o_, o_, lse_, dq_, dk_, dv_;
  DeviceBuffer rng_state_;
  double error_ratio_ = 0;
  DeviceTensor d_lse_, sinks_, d_sinks_;
  std::vector<DeviceTensor> d_tensors_;  // as those of the case

  struct FunctorTensor {
    std::string name;
    DeviceBuffer memory;
    TensorView view;
  };
  std::vector<FunctorTensor> tensors_;
};

}  // namespace jit::testing
