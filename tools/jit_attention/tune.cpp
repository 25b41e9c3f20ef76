// jit-attention tune: finds and records the fastest configs for a problem.
#include <map>
#include <memory>
#include <string>

#include <fmt/format.h>
#include <jit/tuning.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "command.h"
#include "device_choice.h"
#include "problem.h"
#include "progress.h"

namespace jit::tool {
namespace {

struct TuneOptions {
  ProblemOptions problem;
  bool backward = false;
  bool deterministic = false;
  bool exhaustive = false;
  double seconds = 0;
  bool as_json = false;
};

TuningResult measure(const TuneOptions& options, const Problem& problem,
                     const std::map<std::string, void*>& addresses, const Context& context) {
  if (!options.backward) return tune(problem.spec, placeholder_arguments(problem, addresses), context);
  BackwardArguments arguments = placeholder_backward_arguments(problem, addresses);
  arguments.deterministic = options.deterministic;
  return tune(problem.spec, arguments, context);
}

int run_tune(const TuneOptions& options) {
  Problem problem = build_problem(options.problem);
  // Refuse specs without gradients before searching for a device.
  if (options.backward) sized_backward_arguments(problem.spec, shape_of(problem));
  const DeviceInfo device = choose_timed_device(options.problem.device, "tune");
  ProgressLine progress;
  Settings settings = settings_from_environment();
  settings.tuning = options.exhaustive ? TuningMode::exhaustive : TuningMode::first_run;
  if (options.seconds > 0) settings.tuning_seconds = options.seconds;
  const Context context(settings, progress.observer());
  const CurrentDevice scope(device.ordinal);
  DeviceTensors tensors(device.ordinal, problem.tensors);
  tensors.make_block_mask(problem, context);
  const TuningResult result = measure(options, problem, tensors.addresses(), context);

  if (options.as_json) {
    print_json({{"device", device.name},
                {"spec", to_string(problem.spec)},
                {"backward", options.backward},
                {"deterministic", options.deterministic},
                {"config", to_string(result.configs)},
                {"median_us", result.median_us},
                {"default_us", result.default_us},
                {"candidates", result.candidates},
                {"out_of_time", result.out_of_time},
                {"recorded_in", result.recorded_in},
                {"log", result.log}});
    return status_ok;
  }
  for (const std::string& line : result.log) print("{}\n", line);
  print("\n{}{} on {}{}\n", options.backward ? "backward of " : "", to_string(problem.spec), device.name,
        result.out_of_time ? ", out of time" : "");
  print("chosen: {}\n{:.2f} us; the cost model's config takes {:.2f} us\n", to_string(result.configs),
        result.median_us, result.default_us);
  print("{}\n", result.recorded_in.empty() ? "not recorded: there is no cache folder"
                                           : "recorded in " + result.recorded_in);
  return status_ok;
}

}  // namespace

void add_tune(CLI::App& app, Commands& commands) {
  const auto options = std::make_shared<TuneOptions>();
  CLI::App* command =
      app.add_subcommand("tune", "Measure configs on the GPU and record the fastest for these sizes");
  add_problem_options(*command, options->problem);
  CLI::Option* const backward = command->add_flag("--backward", options->backward,
                                                  "Kernels of the backward pass: gradients of q, k and v");
  command
      ->add_flag("--deterministic", options->deterministic,
                 "Deterministic gradients: bitwise identical for equal inputs")
      ->needs(backward);
  CLI::Option* const exhaustive = command->add_flag("--exhaustive", options->exhaustive,
                                                    "Measure every legal config, however long it takes");
  command->add_option("--seconds", options->seconds, "Time to spend; default: JIT_ATTENTION_TUNING_SECONDS")
      ->check(must_be_positive)
      ->excludes(exhaustive);
  command->add_flag("--json", options->as_json, "Print JSON");
  commands.push_back({command, [options] { return run_tune(*options); }});
}

}  // namespace jit::tool
