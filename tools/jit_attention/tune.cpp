// jit-attention tune: finds the fastest config for a problem, and records it.
#include <memory>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "command.h"
#include "device_choice.h"
#include "generator/context_state.h"
#include "generator/problem/arguments.h"
#include "generator/tuning/tuner.h"
#include "generator/tuning/tuning_record.h"
#include "problem.h"
#include "progress.h"

namespace jit::tool {
namespace {

struct Options {
  ProblemOptions problem;
  bool exhaustive = false;
  double seconds = 0;
  bool as_json = false;
};

int run_tune(const Options& options) {
  const Problem problem = build_problem(options.problem);
  const DeviceInfo device = choose_timed_device(options.problem.device, "tune");
  ProgressLine progress;
  Settings settings = settings_from_environment();
  if (options.seconds > 0) settings.tuning_seconds = options.seconds;
  const Context context(settings, progress.observer());
  ContextState& state = *context.state();

  const DeviceTensors tensors(device.ordinal, problem.tensors);
  AttentionParams params;
  fill_params(problem.spec, functor_tensor_uses(problem.spec),
              placeholder_arguments(problem, tensors.addresses()), params);
  const TuningResult result =
      tune_and_record(state, {.spec = problem.spec, .device = device, .params = params}, options.exhaustive)
          .result;
  const std::string recorded = state.tuning.writable() ? context.cache_directory() : "";

  if (options.as_json) {
    print_json({{"device", device.name},
                {"spec", to_string(problem.spec)},
                {"config", to_string(result.config)},
                {"median_us", result.median_us},
                {"default_us", result.default_us},
                {"candidates", result.candidates},
                {"out_of_time", result.out_of_time},
                {"recorded_in", recorded},
                {"log", result.log}});
    return status_ok;
  }
  for (const std::string& line : result.log) fmt::print("{}\n", line);
  fmt::print("\n{} on {}{}\n", to_string(problem.spec), device.name,
             result.out_of_time ? ", out of time" : "");
  fmt::print("chosen: {}\n{:.2f} us; the heuristic's config takes {:.2f} us\n", to_string(result.config),
             result.median_us, result.default_us);
  fmt::print("{}\n", recorded.empty() ? "not recorded: there is no cache folder" : "recorded in " + recorded);
  return status_ok;
}

}  // namespace

void add_tune(CLI::App& app, Commands& commands) {
  const auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("tune", "Measure configs on the GPU and record the fastest for these sizes");
  add_problem_options(*command, options->problem);
  command->add_flag("--exhaustive", options->exhaustive, "Measure every legal config, however long it takes");
  command->add_option("--seconds", options->seconds, "Time to spend; default: JIT_ATTENTION_TUNING_SECONDS")
      ->check(CLI::PositiveNumber);
  command->add_flag("--json", options->as_json, "Print JSON");
  commands.push_back({command, [options] { return run_tune(*options); }});
}

}  // namespace jit::tool
