#include <exception>
#include <optional>

#include <fmt/format.h>
#include <jit/error.h>

#include "generator/context/context_state.h"
#include "generator/kernels/fixed_bits.h"
#include "generator/tuning/tune.h"
#include "generator/tuning/tuning_record.h"

namespace jit {
namespace {

bool is_empty(const ProblemShape& shape) {
  return shape.batch == 0 || shape.heads_q == 0 || shape.seqlen_q == 0 || shape.seqlen_kv == 0;
}

// Why the cost model decides without a record or tuning; null if it does not.
const char* why_untuned(const Settings& settings, const TuningProblem& problem) {
  // Empty problems: there is nothing to measure.
  if (settings.tuning == TuningMode::off || is_empty(problem.shape())) return "cost model, these sizes";
  if (problem.spec().split_keys != 0 && !has_fixed_bits(problem.spec()))
    return "cost model; with split_keys one config serves all calls that TMA can read, and one all others";
  if (!can_time(problem.spec())) return "cost model; with tensors of rows of varlen queries nothing is timed";
  if (problem.device().emulated) return "cost model; an emulated device has no time to measure";
  return nullptr;
}

std::optional<Plan> recorded_plan(ContextState& context, const TuningProblem& problem) {
  const std::optional<RecordedConfigs> recorded = find_record(context, problem);
  if (!recorded) return std::nullopt;
  try {
    return problem.plan(context, recorded->configs, "recorded: " + recorded->record);
  } catch (const Error& error) {  // e.g. offline without this kernel
    context.notify(Event::Kind::warning, fmt::format("the recorded config cannot be used: {}", error.what()));
    return std::nullopt;
  }
}

Plan tuned_plan(ContextState& context, const TuningProblem& problem) {
  TuningResult result = tune_and_record(context, problem);
  Plan plan = problem.plan(context, result.configs, "tuned: " + result.record);
  plan.tuning_log = std::move(result.log);
  return plan;
}

}  // namespace

Plan choose_plan(ContextState& context, const TuningProblem& problem,
                 const std::function<Plan(std::string why)>& untuned) {
  const Settings& settings = context.settings;
  if (const char* const why = why_untuned(settings, problem)) return untuned(why);
  if (std::optional<Plan> recorded = recorded_plan(context, problem)) return *std::move(recorded);
  if (settings.tuning != TuningMode::recorded && !settings.offline) {
    try {
      return tuned_plan(context, problem);
    } catch (const std::exception& error) {  // e.g. too little memory to tune: still compute
      context.notify(Event::Kind::warning,
                     fmt::format("tuning failed, the cost model decides: {}", error.what()));
    }
  }
  return untuned("cost model, these sizes");
}

}  // namespace jit
