// Kernels that `bench` times, each a row of its report.
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
  std::vector<std::string> configs = {};  ///< as text: PlanConfigs of backward, else one config each
  int candidates = 0;
  std::string among = {};  ///< fields that all candidates must have

  /// Whether `bench` should time only the config that a call would run.
  bool wants_chosen() const { return configs.empty() && candidates == 0; }
};
void add_row_options(CLI::App& app, RowOptions& options);

/// Throws BadInput for an invalid config. Needs neither device nor spec.
void validate(const RowOptions& options);

struct BenchRow {
  std::string name;  ///< unique in its report
  std::string why;   ///< reason for this config
  PlanConfigs configs;
  std::vector<CompiledKernel> kernels = {};  ///< of these, once compiled
  std::string trouble = {};                  ///< reason for a missing time; empty: timed
  Timing timing = {};
};

/// The rows that the options select: steps of the ladder, configs, then up to the wanted number of further
/// candidates, ranked by the cost model for calls like `arguments`, without near-duplicates. Steps and
/// configs may be illegal. Missing fields of a config come from the cost model, for backward from the
/// family's defaults. Throws BadInput when no legal config is among the candidates asked for. Backward has no
/// ladder.
std::vector<BenchRow> choose_rows(const RowOptions& options, const AttentionSpec& spec,
                                  const AttentionArguments& arguments, const DeviceInfo& device);
std::vector<BenchRow> choose_rows(const RowOptions& options, const AttentionSpec& spec,
                                  const BackwardArguments& arguments, const DeviceInfo& device);

/// One row of the JSON report; `flops` is the useful work of a launch.
nlohmann::ordered_json describe_row(const BenchRow& row, double flops);

}  // namespace jit::tool
