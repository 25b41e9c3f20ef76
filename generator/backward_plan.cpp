#include "generator/backward_plan.h"

#include <utility>

#include <jit/device.h>
#include <jit/spec_table.h>

#include "generator/context_state.h"
#include "generator/kernels.h"
#include "generator/kernels/families.h"
#include "generator/kernels/search.h"

namespace jit {
namespace {

// A kernel of a family's program beside its main one.
PlanStep side_step(ContextState& context, const Program& program, int device,
                   std::function<void(const KernelLaunch&)> launch) {
  const Target target = native_target(device_info(device));
  return {.kernel = load_kernel(context, build_image(context, program, target), device),
          .workspace_bytes = [](const AttentionParams&) { return std::size_t{0}; },
          .launch = std::move(launch)};
}

}  // namespace

BackwardPlan one_pass_plan(ContextState& context, const AttentionSpec& spec, const BackwardWgmma& config,
                           int device) {
  const DeviceInfo info = device_info(device);
  BuiltKernel kernel = choose_kernel(context, spec, config, {.pass = Pass::backward}, device_limits(info),
                                     native_target(info));
  Plan plan{.spec = spec,
            .config = config,
            .steps = {},
            .why = "cost model, these sizes",
            .is_checked = is_checked(spec, config, kernel.image->target)};
  plan.steps.push_back(
      side_step(context, backward_wgmma::prepare_program(spec, config), device,
                [config](const KernelLaunch& launch) { backward_wgmma::launch_prepare(launch, config); }));
  plan.steps.push_back(plan_step(load_kernel(context, std::move(kernel.image), device), spec, config));
  plan.steps.push_back(
      side_step(context, backward_wgmma::convert_program(spec, config), device,
                [config](const KernelLaunch& launch) { backward_wgmma::launch_convert(launch, config); }));
  const std::size_t steps = plan.steps.size();
  return {.plan = std::move(plan), .configs = std::vector<KernelConfig>(steps, config)};
}

BackwardPlan two_pass_plan(ContextState& context, const AttentionSpec& spec, const ProblemShape& shape,
                           const std::optional<BackwardDqMmaSync>& dq,
                           const std::optional<BackwardDkvMmaSync>& dkv, int device) {
  const DeviceInfo info = device_info(device);
  BackwardPlan result{.plan = {.spec = spec, .config = {}, .steps = {}, .why = "cost model, these sizes"},
                      .configs = {}};
  const auto add = [&](Pass pass, const std::optional<KernelConfig>& given) {
    ProblemShape own = shape;
    own.pass = pass;
    BuiltKernel kernel = choose_kernel(context, spec, given, own, device_limits(info), native_target(info));
    result.plan.is_checked |= is_checked(spec, kernel.config, kernel.image->target);
    result.plan.steps.push_back(
        plan_step(load_kernel(context, std::move(kernel.image), device), spec, kernel.config));
    result.configs.push_back(kernel.config);
  };
  add(Pass::backward_dq, dq);
  add(Pass::backward_dkv, dkv);
  result.plan.config = result.configs.back();
  return result;
}

BackwardPlan choose_backward_plan(ContextState& context, const AttentionSpec& spec, const ProblemShape& shape,
                                  bool deterministic, int device) {
  ProblemShape own = shape;
  own.pass = Pass::backward;
  const DeviceLimits limits = device_limits(device_info(device));
  const bool takes_turns = deterministic && is_plain(spec);
  if (config_space({spec, limits}, own).empty() || deterministic != takes_turns)
    return two_pass_plan(context, spec, shape, {}, {}, device);
  BackwardWgmma config = std::get<BackwardWgmma>(untuned_order(spec, own, limits).front());
  config.deterministic = takes_turns;
  return one_pass_plan(context, spec, config, device);
}

}  // namespace jit
