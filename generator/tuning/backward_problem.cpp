#include <algorithm>

#include <fmt/format.h>

#include "generator/kernels/families.h"
#include "generator/plan/backward_plan.h"
#include "generator/problem/gradient_arguments.h"
#include "generator/problem/kernel_spec.h"
#include "generator/tuning/backward_buffers.h"
#include "generator/tuning/tuning_problem.h"

namespace jit {

BackwardProblem::BackwardProblem(const AttentionSpec& spec, DeviceInfo device, const ProblemShape& shape,
                                 const AttentionParams& params, bool deterministic)
    : TuningProblem(gradient_spec(spec), std::move(device), shape, params),
      kernel_spec_(backward_spec(spec, shape)),
      deterministic_(deterministic) {}

ProblemShape BackwardProblem::shape_of(Pass pass) const {
  ProblemShape own = shape();
  own.pass = pass;
  return own;
}

std::vector<Candidate> BackwardProblem::one_pass_candidates() const {
  const DeviceLimits limits = device_limits(device());
  if (!has_one_pass(kernel_spec_, shape(), limits)) return {};
  std::vector<Candidate> candidates = all_candidates(kernel_spec_, shape(), limits);
  if (deterministic_)
    std::erase_if(candidates, [](const Candidate& candidate) {
      const KernelConfig& config = candidate.configs.front();
      return deterministic_config(config) != config;
    });
  return candidates;
}

bool BackwardProblem::has_two_passes() const {
  const Case problem{kernel_spec_, device_limits(device())};
  const auto has = [&](Pass pass) { return !config_space(problem, shape_of(pass)).empty(); };
  return has(Pass::backward_dq) && has(Pass::backward_dkv);
}

// Pairs of dQ and dK-dV configs. There are too many to measure: both must be promising, or one of them be the
// cost model's first. Throws Error if there are none.
std::vector<Candidate> BackwardProblem::two_pass_candidates(bool exhaustive) const {
  const DeviceLimits limits = device_limits(device());
  const std::vector<Candidate> dq = all_candidates(kernel_spec_, shape_of(Pass::backward_dq), limits);
  const std::vector<Candidate> dkv = all_candidates(kernel_spec_, shape_of(Pass::backward_dkv), limits);
  const std::vector<Candidate> few_dq = promising(dq), few_dkv = promising(dkv);
  std::vector<Candidate> both = pairs(few_dq, few_dkv);
  if (!exhaustive) return both;
  for (const auto& more : {pairs(dq, std::span(dkv).first(1)), pairs(std::span(dq).first(1), dkv)}) {
    for (const Candidate& candidate : more) {
      const auto is_same = [&](const Candidate& other) { return other.configs == candidate.configs; };
      if (std::none_of(both.begin(), both.end(), is_same)) both.push_back(candidate);
    }
  }
  return both;
}

std::vector<Candidate> BackwardProblem::candidates(bool exhaustive) const {
  std::vector<Candidate> all = one_pass_candidates();
  if (all.empty() || has_two_passes())
    std::ranges::move(two_pass_candidates(exhaustive), std::back_inserter(all));
  return exhaustive ? all : promising(all);
}

std::string BackwardProblem::rejection(const PlanConfigs& configs) const {
  const std::vector<Pass> passes =
      configs.size() == 1 ? std::vector{Pass::backward} : std::vector{Pass::backward_dq, Pass::backward_dkv};
  const auto computes = [](const KernelConfig& config, Pass pass) { return pass_of(config) == pass; };
  if (!std::equal(configs.begin(), configs.end(), passes.begin(), passes.end(), computes)) {
    return fmt::format(
        "gradients are computed by a kernel of all of them, or by one of dq and then one of dk and dv: "
        "configs are one of family={}, or one of family={} + one of family={}",
        family_names(Pass::backward), family_names(Pass::backward_dq), family_names(Pass::backward_dkv));
  }
  for (const KernelConfig& config : configs) {
    std::string reason = config_rejection(kernel_spec_, config, device_limits(device()));
    if (!reason.empty()) return reason;
  }
  if (deterministic_ && deterministic_config(configs.front()) != configs.front())
    return "deterministic must be true, as the call has it";
  return "";
}

bool BackwardProblem::can_run(const PlanConfigs& configs) const {
  return rejection(configs).empty() &&
         std::all_of(configs.begin(), configs.end(), [&](const KernelConfig& config) {
           return can_serve({kernel_spec_, device_limits(device())}, shape_of(pass_of(config)), config);
         });
}

std::vector<std::string> BackwardProblem::competing_entries() const {
  std::vector<std::string> entries;
  for (const Pass pass : {Pass::backward, Pass::backward_dq, Pass::backward_dkv}) {
    std::ranges::move(jit::competing_entries({kernel_spec_, device_limits(device())}, shape_of(pass)),
                      std::back_inserter(entries));
  }
  return entries;
}

std::vector<std::shared_ptr<const KernelImage>> BackwardProblem::build(KernelStore& store,
                                                                       const PlanConfigs& configs) const {
  return build_backward_kernels(store, kernel_spec_, configs, native_target(device()));
}

Plan BackwardProblem::plan(KernelStore& store, const PlanConfigs& configs, std::string why) const {
  return backward_plan(store, kernel_spec_, configs, device().ordinal, std::move(why));
}

std::vector<Program> BackwardProblem::check_programs() const { return backward_check_programs(spec()); }

std::unique_ptr<TuningBuffers> BackwardProblem::buffers(KernelStore& store, CUstream stream) const {
  return std::make_unique<BackwardBuffers>(store, spec(), device(), params(), stream);
}

BackwardProblem backward_problem(const AttentionSpec& spec, const DeviceInfo& device,
                                 const AttentionParams& params, const GradientParams& gradients,
                                 bool deterministic) {
  return {spec, device, backward_shape(params, gradients), params, deterministic};
}

}  // namespace jit
