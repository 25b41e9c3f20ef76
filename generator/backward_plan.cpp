#include "generator/backward_plan.h"

#include <utility>

#include <jit/device.h>
#include <jit/spec_table.h>

#include "generator/context_state.h"
#include "generator/kernels.h"
#include "generator/kernels/backward_sinks/steps.h"
#include "generator/kernels/backward_tensors/steps.h"
#include "generator/kernels/families.h"
#include "generator/kernels/search.h"
#include "generator/problem/padded_spec.h"

namespace jit {
namespace {

// A kernel of a family's program beside its main one.
PlanStep side_step(ContextState& context, const Program& program, int device,
                   std::function<void(const KernelLaunch&)> launch) {
  const Target target = native_target(device_info(device));
  return {.kernel = load_kernel(context, build_image(context, program, target), device),
          .workspace_bytes = [](const AttentionParams&, const GradientParams*) { return std::size_t{0}; },
          .launch = std::move(launch)};
}

void add_step(BackwardPlan& plan, PlanStep step) {
  plan.plan.steps.push_back(std::move(step));
  plan.configs.push_back(plan.plan.config);
}

// Reads what the steps of dQ leave of each query, and therefore comes next.
void add_sink_step(ContextState& context, BackwardPlan& plan, const AttentionSpec& spec, int device) {
  constexpr QueryStatisticsLayout of_two_passes = {.tile = statistic_chunk, .sign = 1};
  const BackwardWgmma* const one_pass = std::get_if<BackwardWgmma>(&plan.plan.config);
  const QueryStatisticsLayout layout = one_pass ? backward_wgmma::statistics(*one_pass) : of_two_passes;
  add_step(plan, side_step(context, backward_sinks::program(spec), device,
                           [layout](const KernelLaunch& launch) { backward_sinks::launch(launch, layout); }));
}

// Overwrite the workspace, and therefore come last.
void add_tensor_steps(ContextState& context, BackwardPlan& plan, const AttentionSpec& spec, unsigned slots,
                      int device) {
  PlanStep sum =
      side_step(context, backward_tensors::sum_program(spec, slots), device, backward_tensors::launch_sum);
  sum.workspace_bytes = [](const AttentionParams&, const GradientParams* gradients) {
    return backward_tensors::workspace_bytes(*gradients);
  };
  add_step(plan, std::move(sum));
  add_step(plan, side_step(context, backward_tensors::convert_program(spec, slots), device,
                           backward_tensors::launch_convert));
}

BackwardPlan operand_plan(ContextState& context, const AttentionSpec& spec, const BackwardCall& call,
                          int device) {
  ProblemShape shape = call.shape;
  shape.pass = Pass::backward;
  const DeviceLimits limits = device_limits(device_info(device));
  const bool takes_turns = call.deterministic && is_plain(spec);
  if (config_space({spec, limits}, shape).empty() || call.deterministic != takes_turns)
    return two_pass_plan(context, spec, shape, {}, {}, device);
  BackwardWgmma config = std::get<BackwardWgmma>(untuned_order(spec, shape, limits).front());
  config.deterministic = takes_turns;
  return one_pass_plan(context, spec, config, device);
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

BackwardPlan choose_backward_plan(ContextState& context, const AttentionSpec& spec, const BackwardCall& call,
                                  int device) {
  AttentionSpec own = call.shape.has_device_lengths ? with_lengths(spec) : spec;
  own.sinks = false;  // LSE has them, and probabilities come from it
  BackwardPlan plan = operand_plan(context, own, call, device);
  if (call.has_sinks) add_sink_step(context, plan, own, device);
  if (call.tensor_slots != 0) add_tensor_steps(context, plan, own, call.tensor_slots, device);
  return plan;
}

}  // namespace jit
