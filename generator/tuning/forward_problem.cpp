#include <utility>

#include <fmt/format.h>

#include "generator/kernels/families.h"
#include "generator/plan/kernel_choice.h"
#include "generator/problem/arguments.h"
#include "generator/problem/kernel_spec.h"
#include "generator/tuning/forward_buffers.h"
#include "generator/tuning/tuning_problem.h"

namespace jit {

ForwardProblem::ForwardProblem(const AttentionSpec& spec, DeviceInfo device, const ProblemShape& shape,
                               const AttentionParams& params)
    : TuningProblem(spec, std::move(device), shape, params),
      kernel_spec_(forward_spec(spec, shape.has_device_lengths)) {}

std::vector<Candidate> ForwardProblem::candidates(bool exhaustive) const {
  const DeviceLimits limits = device_limits(device());
  return exhaustive ? all_candidates(kernel_spec_, shape(), limits)
                    : first_run_candidates(kernel_spec_, shape(), limits);
}

std::string ForwardProblem::rejection(const PlanConfigs& configs) const {
  if (configs.size() != 1)
    return fmt::format("one kernel computes the output, and there are configs of {}", configs.size());
  if (pass_of(configs.front()) != Pass::forward)
    return fmt::format("kernels of family={} compute gradients", family_name(configs.front()));
  return config_rejection(kernel_spec_, configs.front(), device_limits(device()));
}

bool ForwardProblem::can_run(const PlanConfigs& configs) const {
  return rejection(configs).empty() &&
         can_serve({kernel_spec_, device_limits(device())}, shape(), configs.front());
}

std::vector<std::string> ForwardProblem::competing_entries() const {
  return jit::competing_entries({kernel_spec_, device_limits(device())}, shape());
}

std::vector<std::shared_ptr<const KernelImage>> ForwardProblem::build(KernelStore& store,
                                                                      const PlanConfigs& configs) const {
  return {build_kernel(store, kernel_spec_, configs.front(), native_target(device())).image};
}

Plan ForwardProblem::plan(KernelStore& store, const PlanConfigs& configs, std::string why) const {
  BuiltKernel kernel = build_kernel(store, kernel_spec_, configs.front(), native_target(device()));
  return make_plan(store, kernel_spec_, std::move(kernel), device().ordinal, std::move(why));
}

std::vector<Program> ForwardProblem::check_programs() const { return forward_check_programs(spec()); }

std::unique_ptr<TuningBuffers> ForwardProblem::buffers(KernelStore& store, CUstream stream) const {
  return std::make_unique<ForwardBuffers>(store, spec(), device(), params(), stream);
}

ForwardProblem forward_problem(const AttentionSpec& spec, const DeviceInfo& device,
                               const AttentionParams& params) {
  return {spec, device, shape_of(params), params};
}

}  // namespace jit
