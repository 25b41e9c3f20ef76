#include "generator/tuning/tune.h"

#include <utility>

#include <fmt/format.h>
#include <jit/error.h>
#include <jit/tuning.h>

#include "generator/context/access.h"
#include "generator/context/context_state.h"
#include "generator/kernels/fixed_bits.h"
#include "generator/kernels/search.h"
#include "generator/problem/arguments.h"
#include "generator/problem/gradient_arguments.h"
#include "generator/tuning/tuner.h"
#include "generator/tuning/tuning_record.h"

namespace jit {
namespace {

void require_support(const AttentionSpec& spec, const DeviceInfo& device) {
  if (const std::vector<Refusal> refusals = refusals_of(spec, device); !refusals.empty()) {
    throw Error(ErrorCode::unsupported_device, "validate", refusals[0].field,
                fmt::format("{} cannot run this: {}", device.name, refusals[0].to_string()));
  }
}

[[noreturn]] void refuse_nothing() {
  throw Error(
      ErrorCode::invalid_argument, "tune", "q",
      "q: there is nothing to compute, and so nothing to measure; give batch, heads, queries and keys");
}

AttentionParams params_of(const AttentionSpec& spec, const AttentionArguments& arguments) {
  AttentionParams params;
  if (!fill_params(spec, functor_tensor_uses(spec), arguments, params) || shape_of(params).seqlen_kv == 0)
    refuse_nothing();
  return params;
}

std::pair<AttentionParams, GradientParams> params_of(const AttentionSpec& spec,
                                                     const BackwardArguments& arguments) {
  std::pair<AttentionParams, GradientParams> params;
  if (!fill_params(spec, functor_tensor_uses(spec), arguments, params.first, params.second)) refuse_nothing();
  const ProblemShape shape = shape_of(params.first);
  if (shape.batch * shape.heads_q * shape.seqlen_q * shape.seqlen_kv == 0) refuse_nothing();
  return params;
}

void check_is_tuned(const AttentionSpec& spec) {
  if (spec.split_keys == 0 || has_fixed_bits(spec)) return;
  throw Error(
      ErrorCode::invalid_argument, "tune", "split_keys",
      "split_keys: with it no size of a call decides which config serves it, whatever is fast for some; "
      "nothing is tuned");
}

// The current device. Throws Error if calls of the spec cannot be measured on it.
DeviceInfo device_to_time(const AttentionSpec& spec) {
  DeviceInfo device = device_info(current_device());
  if (!can_time(spec)) {
    throw Error(
        ErrorCode::invalid_argument, "tune", "tensors",
        "tensors: what mask or score reads has a row for each row of varlen queries, and times are taken "
        "of queries of the library's own; give dense ones, without list_block");
  }
  if (device.emulated) {
    throw Error(ErrorCode::unsupported_device, "tune", "device",
                fmt::format("{} is emulated and has no time to measure; it needs a GPU", device.name));
  }
  require_support(spec, device);
  return device;
}

}  // namespace

TuningResult tune_and_record(ContextState& context, const TuningProblem& problem) {
  const bool exhaustive = context.settings.tuning == TuningMode::exhaustive;
  TuningResult result = tune(context, problem, exhaustive);
  result.record = write_record(result, problem);
  context.tuning.store(tuning_environment(context, problem, exhaustive),
                       tuning_operation(problem.spec(), size_class(problem.shape()), problem.deterministic()),
                       result.record);
  if (context.tuning.writable()) result.recorded_in = context.directory.path;
  return result;
}

ForwardProblem tuning_problem(const AttentionSpec& spec, const AttentionArguments& arguments) {
  validate(spec);
  const AttentionParams params = params_of(spec, arguments);
  return forward_problem(spec, device_to_time(spec), params);
}

BackwardProblem tuning_problem(const AttentionSpec& spec, const BackwardArguments& arguments) {
  validate(spec);
  const auto [params, gradients] = params_of(spec, arguments);
  return backward_problem(spec, device_to_time(spec), params, gradients, arguments.deterministic);
}

TuningResult tune(const AttentionSpec& spec, const AttentionArguments& arguments, const Context& context) {
  check_is_tuned(spec);
  return tune_and_record(*Access::state(context), tuning_problem(spec, arguments));
}

TuningResult tune(const AttentionSpec& spec, const BackwardArguments& arguments, const Context& context) {
  return tune_and_record(*Access::state(context), tuning_problem(spec, arguments));
}

std::vector<KernelConfig> candidate_configs(const AttentionSpec& spec, const AttentionArguments& arguments,
                                            const DeviceInfo& device) {
  validate(spec);
  const AttentionParams params = params_of(spec, arguments);
  require_support(spec, device);
  return ranked_configs(spec, shape_of(params), device_limits(device));
}

std::vector<PlanConfigs> candidate_configs(const AttentionSpec& spec, const BackwardArguments& arguments,
                                           const DeviceInfo& device) {
  validate(spec);
  const auto [params, gradients] = params_of(spec, arguments);
  require_support(spec, device);
  std::vector<PlanConfigs> configs;
  for (Candidate& candidate :
       backward_problem(spec, device, params, gradients, arguments.deterministic).candidates(true))
    configs.push_back(std::move(candidate.configs));
  return configs;
}

}  // namespace jit
