#include "generator/plan/backward_plan.h"

#include <algorithm>
#include <exception>
#include <functional>
#include <future>
#include <iterator>
#include <utility>

#include <jit/device.h>
#include <jit/spec_table.h>

#include "generator/build/images_beside.h"
#include "generator/build/kernel_store.h"
#include "generator/kernels/backward_output/steps.h"
#include "generator/kernels/backward_sinks/steps.h"
#include "generator/kernels/backward_tensors/steps.h"
#include "generator/kernels/families.h"
#include "generator/kernels/search.h"
#include "generator/launch/raw_gradient.h"
#include "generator/plan/kernel_choice.h"
#include "generator/problem/functor_gradients.h"
#include "generator/problem/kernel_spec.h"
#include "runtime/parallel.h"

namespace jit {
namespace {

// The programs around a family's main one.
std::vector<Program> programs_around(const AttentionSpec& spec, const KernelConfig& config) {
  std::vector<Program> programs;
  const FamilySteps around = steps_around(spec, config);
  for (const auto* steps : {&around.before, &around.behind}) {
    for (const FamilyStep& step : *steps) programs.push_back(step.program);
  }
  return programs;
}

// The score tensors among the call's slots.
unsigned score_slots(const AttentionSpec& spec, const BackwardCall& call) {
  return call.tensor_slots & ~output_slots(functor_tensor_uses(spec));
}

// A step of a small kernel next to a family's main kernel.
PlanStep side_step(KernelStore& store, const Program& program, const KernelConfig& config, int device,
                   std::function<void(const KernelLaunch&)> launch) {
  const Target target = native_target(device_info(device));
  return {.kernel = load_kernel(store, build_image(store, program, target), device),
          .workspace_bytes = [](const AttentionParams&, const GradientParams*) { return std::size_t{0}; },
          .launch = std::move(launch),
          .config = config};
}

// Appends the gradient of sinks, right after dQ, whose per-query statistics it reads.
void add_sink_step(KernelStore& store, Plan& plan, int device) {
  const QueryStatisticsLayout layout = query_statistics(plan.config);
  plan.steps.push_back(
      side_step(store, backward_sinks::program(plan.spec), plan.config, device,
                [layout](const KernelLaunch& launch) { backward_sinks::launch(launch, layout); }));
}

// Appends steps that overwrite the workspace, and so run last.
void add_tensor_steps(KernelStore& store, Plan& plan, unsigned slots, int device) {
  PlanStep sum =
      side_step(store, backward_tensors::sum_program(plan.spec, slots), plan.config, device,
                [slots](const KernelLaunch& launch) { backward_tensors::launch_sum(launch, slots); });
  sum.workspace_bytes = [slots](const AttentionParams&, const GradientParams* gradients) {
    return backward_tensors::workspace_bytes(*gradients, slots);
  };
  plan.steps.push_back(std::move(sum));
  plan.steps.push_back(
      side_step(store, backward_tensors::convert_program(plan.spec, slots), plan.config, device,
                [slots](const KernelLaunch& launch) { backward_tensors::launch_convert(launch, slots); }));
}

// Prepends the gradient of o before the functor, which all others read, as a part of the family's first step
// or alone.
void add_output_step(KernelStore& store, Plan& plan, const AttentionSpec& spec, int device) {
  plan.kept_bytes = [spec](const AttentionParams& params) { return raw_gradient_bytes(spec, params); };
  const FamilySteps around = steps_around(spec, plan.config);
  if (!around.before.empty()) {
    const FamilyStep& own = around.before.front();
    const LoadedKernel& main = plan.steps[around.before.size()].kernel;
    plan.steps.front() = side_step(store, own.program, plan.config, device, own.launch(main));
    return;
  }
  plan.steps.insert(plan.steps.begin(),
                    side_step(store, backward_output::program(spec), plan.config, device,
                              [spec](const KernelLaunch& launch) { backward_output::launch(spec, launch); }));
}

// Whether all kernels of a one-pass plan are available without a compile.
bool is_at_hand(KernelStore& store, const AttentionSpec& spec, const KernelConfig& config, Target target) {
  const auto are_at_hand = [&](const std::vector<FamilyStep>& steps) {
    return std::all_of(steps.begin(), steps.end(), [&](const FamilyStep& step) {
      return image_at_hand(store, step.program, target) != nullptr;
    });
  };
  const FamilySteps around = steps_around(spec, config);
  return kernel_at_hand(store, spec, config, target) && are_at_hand(around.before) &&
         are_at_hand(around.behind);
}

}  // namespace

Plan one_pass_plan(KernelStore& store, const AttentionSpec& spec, const KernelConfig& config, int device,
                   std::string why) {
  const DeviceInfo info = device_info(device);
  const ImagesBeside beside(store, programs_around(spec, config), native_target(info));
  BuiltKernel kernel =
      choose_kernel(store, spec, config, {.pass = Pass::backward}, device_limits(info), native_target(info));
  Plan plan = make_plan(store, spec, std::move(kernel), device, std::move(why));
  const auto loaded = [&](const std::vector<FamilyStep>& family_steps) {
    std::vector<PlanStep> steps;
    for (const FamilyStep& step : family_steps) {
      steps.push_back(side_step(store, step.program, config, device, step.launch(plan.steps.front().kernel)));
    }
    return steps;
  };
  const FamilySteps around = steps_around(spec, config);
  std::vector<PlanStep> steps = loaded(around.before), behind = loaded(around.behind);
  steps.push_back(std::move(plan.steps.front()));
  std::ranges::move(behind, std::back_inserter(steps));
  plan.steps = std::move(steps);
  return plan;
}

Plan two_pass_plan(KernelStore& store, const AttentionSpec& spec, const ProblemShape& shape,
                   const std::optional<KernelConfig>& dq, const std::optional<KernelConfig>& dkv, int device,
                   std::string why) {
  const DeviceInfo info = device_info(device);
  Plan plan{.spec = spec, .config = {}, .steps = {}, .why = std::move(why)};
  const auto choose = [&](Pass pass, const std::optional<KernelConfig>& given) {
    ProblemShape own = shape;
    own.pass = pass;
    return choose_kernel(store, spec, given, own, device_limits(info), native_target(info),
                         Missing::is_replaced);
  };
  const auto add = [&](BuiltKernel kernel) {
    if (kernel.is_fallback) remark_stand_in(plan.why);
    plan.is_checked |= is_checked(spec, kernel.config, kernel.image->target);
    plan.config = kernel.config;
    add_kernel(store, plan, std::move(kernel), device);
  };
  // Both compile at once; where no thread can be started, one after the other.
  std::future<BuiltKernel> second = std::async([&] { return choose(Pass::backward_dkv, dkv); });
  add(choose(Pass::backward_dq, dq));
  add(second.get());
  return plan;
}

AttentionSpec backward_spec(const AttentionSpec& spec, const ProblemShape& shape) {
  return gradient_spec(shape.has_device_lengths ? with_lengths(spec) : spec);
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
  const std::vector<KernelConfig> order = untuned_order(spec, shape, limits, deterministic);
  try {
    const ImagesBeside beside(
        store, order.empty() ? std::vector<Program>() : programs_around(spec, order.front()), target);
    if (const auto kernel = choose_one_pass(store, spec, shape, deterministic, limits, target))
      return one_pass_plan(store, spec, kernel->config, device, why);
    return two_pass_plan(store, spec, shape, {}, {}, device, why);
  } catch (const Error& error) {
    if (!is_out_of_reach(error)) throw;
  }
  remark_stand_in(why);
  const auto found = std::ranges::find_if(
      order, [&](const KernelConfig& config) { return is_at_hand(store, spec, config, target); });
  Plan plan = found != order.end() ? one_pass_plan(store, spec, *found, device, std::move(why))
                                   : two_pass_plan(store, spec, shape, {}, {}, device, std::move(why));
  tell_of_stand_in(store, spec, target);
  return plan;
}

Plan backward_plan(KernelStore& store, const AttentionSpec& spec, const PlanConfigs& configs, int device,
                   std::string why) {
  if (pass_of(configs.front()) == Pass::backward)
    return one_pass_plan(store, spec, configs.front(), device, std::move(why));
  return two_pass_plan(store, spec, {}, configs.front(), configs.back(), device, std::move(why));
}

std::vector<std::shared_ptr<const KernelImage>> build_backward_kernels(KernelStore& store,
                                                                       const AttentionSpec& spec,
                                                                       const PlanConfigs& configs,
                                                                       Target target) {
  std::vector<std::function<std::shared_ptr<const KernelImage>()>> builds;
  for (const KernelConfig& config : configs)
    builds.emplace_back([&, config] { return build_kernel(store, spec, config, target).image; });
  for (const KernelConfig& config : configs) {
    for (const Program& program : programs_around(spec, config))
      builds.emplace_back([&, program] { return build_image(store, program, target); });
  }
  std::vector<std::shared_ptr<const KernelImage>> images(builds.size());
  std::vector<std::exception_ptr> errors(builds.size());
  in_parallel(
      builds.size(),
      [&](std::size_t i) {
        try {
          images[i] = builds[i]();
        } catch (...) {
          errors[i] = std::current_exception();
        }
      },
      builds.size());
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
  return images;
}

std::vector<Program> shared_gradient_programs(const AttentionSpec& spec, const BackwardCall& call) {
  const AttentionSpec own = backward_spec(spec, call.shape);
  std::vector<Program> programs;
  if (call.has_sinks) programs.push_back(backward_sinks::program(own));
  if (const unsigned slots = score_slots(spec, call); slots != 0) {
    programs.push_back(backward_tensors::sum_program(own, slots));
    programs.push_back(backward_tensors::convert_program(own, slots));
  }
  return programs;
}

void add_shared_gradients(KernelStore& store, Plan& plan, const AttentionSpec& spec, const BackwardCall& call,
                          int device) {
  if (call.has_sinks) add_sink_step(store, plan, device);
  if (const unsigned slots = score_slots(spec, call); slots != 0)
    add_tensor_steps(store, plan, slots, device);
  if (spec.output.is_none()) return;
  AttentionSpec own = backward_spec(spec, call.shape);
  own.output = spec.output;
  add_output_step(store, plan, own, device);
}

}  // namespace jit
