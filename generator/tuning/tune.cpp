#include "generator/tuning/tune.h"

#include <fmt/format.h>
#include <jit/error.h>
#include <jit/tuning.h>

#include "generator/access.h"
#include "generator/context_state.h"
#include "generator/kernels/search.h"
#include "generator/problem/arguments.h"
#include "generator/tuning/tuning_buffers.h"
#include "generator/tuning/tuning_record.h"

namespace jit {
namespace {

void require_support(const AttentionSpec& spec, const DeviceInfo& device) {
  if (const std::vector<Refusal> refusals = supports(spec, device); !refusals.empty()) {
    throw Error(ErrorCode::unsupported_device, "validate", refusals[0].field,
                fmt::format("{} cannot run this: {}", device.name, refusals[0].to_string()));
  }
}

AttentionParams params_of(const AttentionSpec& spec, const AttentionArguments& arguments) {
  AttentionParams params;
  if (fill_params(spec, functor_tensor_uses(spec), arguments, params) && shape_of(params).seqlen_kv > 0)
    return params;
  throw Error(
      ErrorCode::invalid_argument, "tune", "q",
      "q: there is nothing to compute, and so nothing to measure; give batch, heads, queries and keys");
}

}  // namespace

TuningResult tune_and_record(ContextState& context, const TuningProblem& problem) {
  const bool exhaustive = context.settings.tuning == TuningMode::exhaustive;
  TuningResult result = tune(context, problem, exhaustive);
  const ProblemShape shape = shape_of(problem.params);
  result.record = write_record(result, shape, problem.device);
  context.tuning.store(tuning_environment(context, problem.spec, problem.device, shape, exhaustive),
                       tuning_operation(problem.spec, size_class(shape)), result.record);
  if (context.tuning.writable()) result.recorded_in = context.directory.path;
  return result;
}

TuningProblem tuning_problem(const AttentionSpec& spec, const AttentionArguments& arguments) {
  validate(spec);
  const AttentionParams params = params_of(spec, arguments);
  const DeviceInfo device = device_info(current_device());
  if (spec.split_keys != 0) {
    throw Error(ErrorCode::invalid_argument, "tune", "split_keys",
                "split_keys: with it one config serves all calls of a spec, whatever is fast for some; "
                "nothing is tuned");
  }
  if (!can_time(spec)) {
    throw Error(
        ErrorCode::invalid_argument, "tune", "tensors",
        "tensors: what mask or score reads has a row for each row of ragged queries, and tuning measures on "
        "queries of its own; give dense ones");
  }
  if (device.emulated) {
    throw Error(ErrorCode::unsupported_device, "tune", "device",
                fmt::format("{} is emulated and has no time to measure; it needs a GPU", device.name));
  }
  require_support(spec, device);
  return {.spec = spec, .device = device, .params = params};
}

TuningResult tune(const AttentionSpec& spec, const AttentionArguments& arguments, const Context& context) {
  return tune_and_record(*Access::state(context), tuning_problem(spec, arguments));
}

std::vector<KernelConfig> candidate_configs(const AttentionSpec& spec, const AttentionArguments& arguments,
                                            const DeviceInfo& device) {
  validate(spec);
  const AttentionParams params = params_of(spec, arguments);
  require_support(spec, device);
  return ranked_configs(spec, shape_of(params), device_limits(device));
}

}  // namespace jit
