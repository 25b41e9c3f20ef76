// The plan of a call: a few kernels that run in order on a stream, and their shared workspace.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <jit/kernel_config.h>

#include "generator/kernels/family.h"
#include "generator/launch/kernel_launch.h"

namespace jit {

/// A kernel with its family's functions: its workspace and its launch.
struct PlanStep {
  LoadedKernel kernel;
  /// Workspace bytes of a call; with gradients for a backward pass.
  std::function<std::size_t(const AttentionParams&, const GradientParams*)> workspace_bytes;
  std::function<void(const KernelLaunch&)> launch;
  KernelConfig config = {};  ///< of the kernel, or of the main kernel that it serves
  /// Number of earlier launches of the kernel in the plan. All of them share one mailbox.
  int turn = 0;
};

/// The step of a family's kernel that was built for `spec` and `config`.
template <class Config>
PlanStep plan_step(LoadedKernel kernel, const AttentionSpec& spec, const Config& config) {
  const int sm_count = kernel.sm_count;
  return {.kernel = std::move(kernel),
          .workspace_bytes =
              [spec, config, sm_count](const AttentionParams& params, const GradientParams*) {
                return Family<Config>::workspace_bytes(spec, config, params, sm_count);
              },
          .launch = [config](const KernelLaunch& launch) { Family<Config>::launch(launch, config); }};
}
/// The step of a kernel and its config.
PlanStep plan_step(LoadedKernel kernel, const AttentionSpec& spec, const KernelConfig& config);

struct Plan {
  AttentionSpec spec;
  KernelConfig config;          ///< of the pass's main kernel
  std::vector<PlanStep> steps;  ///< in the order in which they run
  std::string why;              ///< reason for the config
  /// Bytes outside the workspace in which steps leave data for later ones, if any.
  std::function<std::size_t(const AttentionParams&)> kept_bytes = {};
  /// Whether kernels check arrays on the device: if the spec asks for it, and on emulated devices.
  bool is_checked = false;
  std::vector<std::string> tuning_log = {};
};

/// A sentence about a fault in an array on the device, and the array's name.
struct FaultText {
  std::string_view array;
  std::string text;
};
FaultText fault_text(const ArrayFault& fault);

/// Runs a plan on `stream`. `params` come from fill_params with work to do; overwrites their batch_begin and
/// q_tile_begin. `gradients` are a backward pass's. Host threads may run plans on one stream concurrently.
/// Throws Error launch_failed; invalid_argument if a kernel uses TMA and cannot map a tensor's strides.
void run_plan(const Plan& plan, AttentionParams& params, const StreamMemory& memory, Stream stream,
              GradientParams* gradients = nullptr);

}  // namespace jit
