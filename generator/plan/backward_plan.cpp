#include "generator/plan/backward_plan.h"

#include <utility>

#include <jit/device.h>
#include <jit/spec_table.h>

#include "generator/build/kernel_store.h"
#include "generator/kernels/backward_sinks/steps.h"
#include "generator/kernels/backward_tensors/steps.h"
#include "generator/kernels/families.h"
#include "generator/kernels/search.h"
#include "generator/plan/kernel_choice.h"
#include "generator/problem/padded_spec.h"

namespace jit {
namespace {

// A kernel of a family's program beside its main one.
PlanStep side_step(KernelStore& store, const Program& program, const KernelConfig& config, int device,
                   std::function<void(const KernelLaunch&)> launch) {
  const Target target = native_target(device_info(device));
  return {.kernel = load_kernel(store, build_image(store, program, target), device),
          .workspace_bytes = [](const AttentionParams&, const GradientParams*) { return std::size_t{0}; },
          .launch = std::move(launch),
          .config = config};
}

// Reads what the steps of dQ leave of each query, and therefore comes next.
void add_sink_step(KernelStore& store, Plan& plan, int device) {
  constexpr QueryStatisticsLayout of_two_passes = {.tile = statistic_chunk, .factor = 1};
  const BackwardWgmma* const one_pass = std::get_if<BackwardWgmma>(&plan.config);
  const QueryStatisticsLayout layout = one_pass ? backward_wgmma::statistics(*one_pass) : of_two_passes;
  plan.steps.push_back(
      side_step(store, backward_sinks::program(plan.spec), plan.config, device,
                [layout](const KernelLaunch& launch) { backward_sinks::launch(launch, layout); }));
}

// Overwrite the workspace, and therefore come last.
void add_tensor_steps(KernelStore& store, Plan& plan, unsigned slots, int device) {
  PlanStep sum = side_step(store, backward_tensors::sum_program(plan.spec, slots), plan.config, device,
                           backward_tensors::launch_sum);
  sum.workspace_bytes = [](const AttentionParams&, const GradientParams* gradients) {
    return backward_tensors::workspace_bytes(*gradients);
  };
  plan.steps.push_back(std::move(sum));
  plan.steps.push_back(side_step(store, backward_tensors::convert_program(plan.spec, slots), plan.config,
                                 device, backward_tensors::launch_convert));
}

// Whether all three kernels of a single pass can be had without a compile.
bool is_at_hand(KernelStore& store, const AttentionSpec& spec, const BackwardWgmma& config, Target target) {
  return kernel_at_hand(store, spec, config, target) &&
         image_at_hand(store, backward_wgmma::prepare_program(spec, config), target) &&
         image_at_hand(store, backward_wgmma::convert_program(spec, config), target);
}

}  // namespace

Plan one_pass_plan(KernelStore& store, const AttentionSpec& spec, const BackwardWgmma& config, int device,
                   std::string why) {
  const DeviceInfo info = device_info(device);
  BuiltKernel kernel =
      choose_kernel(store, spec, config, {.pass = Pass::backward}, device_limits(info), native_target(info));
  Plan plan{.spec = spec,
            .config = config,
            .steps = {},
            .why = std::move(why),
            .is_checked = is_checked(spec, config, kernel.image->target)};
  add_kernel(store, plan, std::move(kernel), device);
  const int takers = backward_wgmma::takers(plan.steps.back().kernel, config);
  plan.steps.insert(plan.steps.begin(), side_step(store, backward_wgmma::prepare_program(spec, config),
                                                  config, device, [=](const KernelLaunch& launch) {
                                                    backward_wgmma::launch_prepare(launch, config, takers);
                                                  }));
  plan.steps.push_back(
      side_step(store, backward_wgmma::convert_program(spec, config), config, device,
                [config](const KernelLaunch& launch) { backward_wgmma::launch_convert(launch, config); }));
  return plan;
}

Plan two_pass_plan(KernelStore& store, const AttentionSpec& spec, const ProblemShape& shape,
                   const std::optional<KernelConfig>& dq, const std::optional<KernelConfig>& dkv, int device,
                   std::string why) {
  const DeviceInfo info = device_info(device);
  Plan plan{.spec = spec, .config = {}, .steps = {}, .why = std::move(why)};
  const auto add = [&](Pass pass, const std::optional<KernelConfig>& given) {
    ProblemShape own = shape;
    own.pass = pass;
    BuiltKernel kernel = choose_kernel(store, spec, given, own, device_limits(info), native_target(info),
                                       Missing::is_replaced);
    if (kernel.stands_in) remark_stand_in(plan.why);
    plan.is_checked |= is_checked(spec, kernel.config, kernel.image->target);
    plan.config = kernel.config;
    add_kernel(store, plan, std::move(kernel), device);
  };
  add(Pass::backward_dq, dq);
  add(Pass::backward_dkv, dkv);
  return plan;
}

AttentionSpec backward_spec(const AttentionSpec& spec, const ProblemShape& shape) {
  AttentionSpec own = shape.has_device_lengths ? with_lengths(spec) : spec;
  own.sinks = false;
  return own;
}

bool has_one_pass(const AttentionSpec& spec, const ProblemShape& shape, const DeviceLimits& limits) {
  return !config_space({spec, limits}, shape).empty();
}

Plan untuned_backward_plan(KernelStore& store, const AttentionSpec& spec, const ProblemShape& shape,
                           bool deterministic, int device, std::string why) {
  const DeviceLimits limits = device_limits(device_info(device));
  if (!has_one_pass(spec, shape, limits))
    return two_pass_plan(store, spec, shape, {}, {}, device, std::move(why));
  const Target target = native_target(device_info(device));
  bool stands_in = false;
  for (const KernelConfig& config : untuned_order(spec, shape, limits)) {
    const BackwardWgmma& one_pass = std::get<BackwardWgmma>(config);
    if (deterministic && !one_pass.deterministic) continue;
    if (stands_in && !is_at_hand(store, spec, one_pass, target)) continue;
    try {
      Plan plan = one_pass_plan(store, spec, one_pass, device, why);
      if (stands_in) tell_of_stand_in(store, spec, target);
      return plan;
    } catch (const Error& error) {
      if (stands_in || !is_out_of_reach(error)) throw;
      stands_in = true;
      remark_stand_in(why);
    }
  }
  Plan plan = two_pass_plan(store, spec, shape, {}, {}, device, std::move(why));
  if (stands_in) tell_of_stand_in(store, spec, target);
  return plan;
}

Plan backward_plan(KernelStore& store, const AttentionSpec& spec, const PlanConfigs& configs, int device,
                   std::string why) {
  if (const BackwardWgmma* const one_pass = std::get_if<BackwardWgmma>(&configs.front()))
    return one_pass_plan(store, spec, *one_pass, device, std::move(why));
  return two_pass_plan(store, spec, {}, configs.front(), configs.back(), device, std::move(why));
}

std::vector<std::shared_ptr<const KernelImage>> build_backward_kernels(KernelStore& store,
                                                                       const AttentionSpec& spec,
                                                                       const PlanConfigs& configs,
                                                                       Target target) {
  std::vector<std::shared_ptr<const KernelImage>> images;
  for (const KernelConfig& config : configs)
    images.push_back(build_kernel(store, spec, config, target).image);
  if (const BackwardWgmma* const one_pass = std::get_if<BackwardWgmma>(&configs.front())) {
    images.push_back(build_image(store, backward_wgmma::prepare_program(spec, *one_pass), target));
    images.push_back(build_image(store, backward_wgmma::convert_program(spec, *one_pass), target));
  }
  return images;
}

void add_shared_gradients(KernelStore& store, Plan& plan, const BackwardCall& call, int device) {
  if (call.has_sinks) add_sink_step(store, plan, device);
  if (call.tensor_slots != 0) add_tensor_steps(store, plan, call.tensor_slots, device);
}

}  // namespace jit
