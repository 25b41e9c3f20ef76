// Tuning records as self-describing text, and their keys.
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

/// The machine and versions for which a record is valid; any difference selects another record. Includes only
/// those templates that kernels of the competing families include.
Key tuning_environment(KernelStore& store, const TuningProblem& problem, bool exhaustive);
/// The problem for which a record is valid. `deterministic` as in TuningProblem.
Key tuning_operation(const AttentionSpec& spec, const SizeClass& sizes, bool deterministic = false);

std::string write_record(const TuningResult& result, const TuningProblem& problem);
/// The configs of a record; nothing if the text is no record or the problem cannot run them.
std::optional<PlanConfigs> read_record(const std::string& text, const TuningProblem& problem);

/// Recorded configs, and a description of their record.
struct RecordedConfigs {
  PlanConfigs configs;
  std::string record;
};
/// The record that the context's tuning mode may use: of an exhaustive search if there is one, else of a
/// first run unless the mode is exhaustive.
std::optional<RecordedConfigs> find_record(ContextState& context, const TuningProblem& problem);

}  // namespace jit
