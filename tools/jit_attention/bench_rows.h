// The kernels that `bench` times, each a row of its report: which they are, what compiles them, what is said
// of them.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "generator/kernels.h"
#include "generator/kernels/families.h"
#include "generator/kernels/search.h"
#include "progress.h"

namespace CLI {
class App;
}  // namespace CLI

namespace jit::tool {

struct RowOptions {
  bool ladder = false;
  std::vector<std::string> configs = {};  ///< fields of a config each, over what the heuristic chooses
  int candidates = 0;
  std::string among = {};  ///< fields that all candidates have

  /// Whether the one config is wanted that a call would run.
  bool wants_chosen() const { return configs.empty() && candidates == 0; }
};
void add_row_options(CLI::App& app, RowOptions& options);

/// Throws BadInput for text that is no config. Needs neither device nor spec.
void validate(const RowOptions& options);

struct BenchRow {
  std::string name;  ///< unique in its report
  std::string why;   ///< this config
  KernelConfig config;
  std::string trouble = {};                       ///< why there is no time; empty: there is one
  std::shared_ptr<const KernelImage> image = {};  ///< once compiled
  std::optional<Plan> plan = {};                  ///< once loaded
  std::vector<float> samples_us = {};
};

/// The rows that the options name: steps of the ladder, configs, then as many further candidates as asked for
/// and there are, by the cost model's rank for `shape`, near-copies left out. A config that is not legal has
/// its trouble. Throws BadInput when no legal config is among those asked for.
std::vector<BenchRow> choose_rows(const RowOptions& options, const AttentionSpec& spec,
                                  const ProblemShape& shape, const DeviceLimits& limits);

/// Compiles on all cores what has no trouble; what fails has it then.
void compile_rows(std::vector<BenchRow>& rows, const AttentionSpec& spec, Target target,
                  ContextState& context, ProgressLine& progress);

/// One row of the JSON report; `flops` is the useful work of a launch.
nlohmann::ordered_json describe_row(const BenchRow& row, double flops);

}  // namespace jit::tool
