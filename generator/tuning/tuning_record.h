// Records of tuning, as text that describes itself, and the identities under which it is kept.
#pragma once

#include <optional>
#include <string>

#include <jit/tuning.h>

#include "cache/key.h"
#include "generator/problem/problem_shape.h"
#include "generator/tuning/tuning_problem.h"

namespace jit {

struct ContextState;
struct KernelStore;

/// The machine and the versions that a record holds for; any difference is another record. Of the templates
/// those count that kernels of the competing families include.
Key tuning_environment(KernelStore& store, const TuningProblem& problem, bool exhaustive);
/// The problem that a record holds for. `deterministic` as TuningProblem has it.
Key tuning_operation(const AttentionSpec& spec, const SizeClass& sizes, bool deterministic = false);

std::string write_record(const TuningResult& result, const TuningProblem& problem);
/// The configs of a record; nothing when the text is not a record or the problem cannot run them.
std::optional<PlanConfigs> read_record(const std::string& text, const TuningProblem& problem);

/// Configs that were found earlier, and what their record says.
struct RecordedConfigs {
  PlanConfigs configs;
  std::string record;
};
/// The record that this context's tuning mode may use: of an exhaustive search where there is one, else,
/// unless the mode is exhaustive, of a first run.
std::optional<RecordedConfigs> find_record(ContextState& context, const TuningProblem& problem);

}  // namespace jit
