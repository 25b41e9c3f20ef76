#include "bench_rows.h"

#include <algorithm>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "command.h"
#include "number_options.h"
#include "spec_options.h"

namespace jit::tool {
namespace {

// Whether one of the configs has these fields already, so that setting them changes nothing.
bool have_fields(const PlanConfigs& configs, const std::string& fields) {
  return std::any_of(configs.begin(), configs.end(),
                     [&](const KernelConfig& config) { return parse_config(fields, config) == config; });
}

void add_candidates(std::vector<BenchRow>& rows, const RowOptions& options, const AttentionSpec& spec,
                    const std::vector<PlanConfigs>& ranked, const DeviceInfo& device) {
  std::vector<PlanConfigs> picked;
  bool any = false;
  for (std::size_t rank = 0; rank < ranked.size(); ++rank) {
    if (picked.size() == static_cast<std::size_t>(options.candidates)) break;
    const PlanConfigs& configs = ranked[rank];
    if (!have_fields(configs, options.among)) continue;
    any = true;
    const auto is_config = [&](const BenchRow& row) { return row.configs == configs; };
    if (std::any_of(rows.begin(), rows.end(), is_config)) continue;
    const auto is_near = [&](const PlanConfigs& other) { return are_near_copies(configs, other); };
    if (std::count_if(picked.begin(), picked.end(), is_near) >= most_near_copies) continue;
    picked.push_back(configs);
    rows.push_back({.name = fmt::format("candidate_{}", picked.size()),
                    .why = fmt::format("rank {} of {} by the cost model", rank + 1, ranked.size()),
                    .configs = configs});
  }
  if (any) return;
  throw BadInput(fmt::format(
      "--among \"{}\": none of the {} legal configs for {} on {} has these fields; give fewer, or "
      "give the config with --config",
      options.among, ranked.size(), to_string(spec), to_string(native_arch(device))));
}

template <class Parse>
void add_given(std::vector<BenchRow>& rows, const RowOptions& options, const Parse& parse) {
  for (std::size_t i = 0; i < options.configs.size(); ++i) {
    rows.push_back(
        {.name = fmt::format("given_{}", i + 1), .why = "given", .configs = parse(options.configs[i])});
  }
}

}  // namespace

void add_row_options(CLI::App& app, RowOptions& options) {
  app.add_option("--config", options.configs,
                 "Fields of a kernel's config, such as \"tile_q=128 stages_k=2\"; the cost model chooses the "
                 "others; may be repeated, each is timed; with --backward one, or two with \" + \" between "
                 "them; default: "
                 "the config that a call would run")
      ->allow_extra_args(false);
  CLI::Option* const candidates = add_whole_option(
      app, "--candidates", options.candidates,
      "Time the configs that the cost model ranks best, this many, without near-copies; nothing is recorded",
      {1, 100000});
  app.add_option("--among", options.among,
                 "Fields that the candidates must have, such as \"family=forward_wgmma tile_kv=128\"")
      ->needs(candidates)
      ->check([](const std::string& fields) -> std::string {
        return fields.empty() ? "has no field; give one such as family=forward_wgmma, or leave the option out"
                              : "";
      });
}

void validate(const RowOptions& options) {
  const auto parse = [](const char* option, const std::string& text) {
    try {
      parse_plan_configs(text);
    } catch (const Error& error) {
      throw BadInput(fmt::format("{} \"{}\": {}", option, text, error.message()));
    }
  };
  for (const std::string& config : options.configs) {
    if (config.empty()) {
      throw BadInput("--config \"\" has no field; give one such as tile_q=128, or leave the option out");
    }
    parse("--config", config);
  }
  parse("--among", options.among);
}

std::vector<BenchRow> choose_rows(const RowOptions& options, const AttentionSpec& spec,
                                  const AttentionArguments& arguments, const DeviceInfo& device) {
  std::vector<BenchRow> rows;
  if (options.ladder) {
    for (const LadderStep& step : ladder()) {
      rows.push_back({.name = step.name, .why = step.technique, .configs = {step.config}});
    }
  }
  add_given(rows, options, [&](const std::string& text) {
    return PlanConfigs{*build_config(text, spec, native_arch(device))};
  });
  if (options.candidates == 0) return rows;
  std::vector<PlanConfigs> ranked;
  for (const KernelConfig& config : candidate_configs(spec, arguments, device)) ranked.push_back({config});
  add_candidates(rows, options, spec, ranked, device);
  return rows;
}

std::vector<BenchRow> choose_rows(const RowOptions& options, const AttentionSpec& spec,
                                  const BackwardArguments& arguments, const DeviceInfo& device) {
  std::vector<BenchRow> rows;
  add_given(rows, options, parse_plan_configs);
  if (options.candidates > 0)
    add_candidates(rows, options, spec, candidate_configs(spec, arguments, device), device);
  return rows;
}

nlohmann::ordered_json describe_row(const BenchRow& row, double flops) {
  nlohmann::ordered_json json = {{"name", row.name}, {"why", row.why}, {"config", to_string(row.configs)}};
  if (!row.kernels.empty()) {
    double compile_ms = 0;
    ResourceUsage all;
    int spill_bytes = 0;
    bool serialized = false;
    for (const CompiledKernel& kernel : row.kernels) {
      const ResourceUsage& resources = kernel.resources();
      compile_ms += kernel.compile_ms();
      all.registers = std::max(all.registers, resources.registers);
      all.stack_bytes += resources.stack_bytes;
      spill_bytes += resources.spill_bytes();
      serialized = serialized || resources.serializes_wgmma();
    }
    json["compile_ms"] = compile_ms;
    json["registers"] = all.registers;
    json["spill_bytes"] = spill_bytes;
    json["local_bytes"] = all.stack_bytes + spill_bytes;
    json["serialized"] = serialized;
  }
  if (!row.trouble.empty()) {
    json["trouble"] = row.trouble;
    return json;
  }
  json["median_us"] = row.timing.median_us;
  json["min_us"] = row.timing.min_us;
  json["spread"] = row.timing.spread;
  json["tflops"] = flops / row.timing.median_us * 1e-6;
  json["samples_us"] = row.timing.samples_us;
  return json;
}

}  // namespace jit::tool
