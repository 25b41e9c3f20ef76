// The kernels that `bench` times, each a row of its report: which they are, and what is said of them.
#pragma once

#include <string>
#include <vector>

#include <jit/tuning.h>
#include <nlohmann/json_fwd.hpp>

namespace CLI {
class App;
}  // namespace CLI

namespace jit::tool {

struct RowOptions {
  bool ladder = false;
  std::vector<std::string> configs = {};  ///< each as text: of backward PlanConfigs, else one config
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
  PlanConfigs configs;
  std::vector<CompiledKernel> kernels = {};  ///< of these, once compiled
  std::string trouble = {};                  ///< why there is no time; empty: there is one
  Timing timing = {};
};

/// The rows that the options name: steps of the ladder, configs, then as many further candidates as asked for
/// and there are, by the cost model's rank for calls like `arguments`, near-copies left out. Steps and configs
/// may be illegal. Fields that a config leaves out are the cost model's, or of backward the family's defaults. Throws
/// BadInput when no legal config is among the candidates asked for. Backward has no ladder.
std::vector<BenchRow> choose_rows(const RowOptions& options, const AttentionSpec& spec,
                                  const AttentionArguments& arguments, const DeviceInfo& device);
std::vector<BenchRow> choose_rows(const RowOptions& options, const AttentionSpec& spec,
                                  const BackwardArguments& arguments, const DeviceInfo& device);

/// One row of the JSON report; `flops` is the useful work of a launch.
nlohmann::ordered_json describe_row(const BenchRow& row, double flops);

}  // namespace jit::tool
