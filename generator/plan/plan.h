// The plan of a call: one to a few kernels, one after another on a stream, and the workspace that they share.
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

/// A kernel with its family's ways: what it needs for a call, and how it is launched.
struct PlanStep {
  LoadedKernel kernel;
  /// The workspace of a call, with the gradients of a backward pass.
  std::function<std::size_t(const AttentionParams&, const GradientParams*)> workspace_bytes;
  std::function<void(const KernelLaunch&)> launch;
  KernelConfig config = {};  ///< of the kernel, or of the one that it prepares for or rounds the results of
  /// How many times the plan has launched the kernel before. All of them use one mailbox.
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
/// A step that knows its config.
PlanStep plan_step(LoadedKernel kernel, const AttentionSpec& spec, const KernelConfig& config);

struct Plan {
  AttentionSpec spec;
  KernelConfig config;          ///< of the pass's main kernel
  std::vector<PlanStep> steps;  ///< in the order in which they run
  std::string why;              ///< this config
  /// Bytes that steps leave for later ones beside the workspace, if there are any.
  std::function<std::size_t(const AttentionParams&)> kept_bytes = {};
  /// Whether kernels look at arrays on the device: of specs that ask for it, and on emulated devices.
  bool is_checked = false;
  std::vector<std::string> tuning_log = {};
};

/// A fault of an array on the device, in a sentence, and its name.
struct FaultText {
  std::string_view array;
  std::string text;
};
FaultText fault_text(const ArrayFault& fault);

/// Runs a plan on `stream`. `params` come from fill_params and compute something; their batch_begin and
/// q_tile_begin are overwritten. Host threads may run plans on one stream at the same time. Throws Error launch_failed;
/// invalid_argument when a kernel reads by TMA and a tensor's strides are not for TMA. `gradients` are those of a backward
/// pass.
void run_plan(const Plan& plan, AttentionParams& params, const StreamMemory& memory, Stream stream,
              GradientParams* gradients = nullptr);

}  // namespace jit
