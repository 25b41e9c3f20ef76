// jit-attention bench: how fast kernels are on the GPU, on random data, with a cold L2 cache.
#include <memory>
#include <optional>

#include <fmt/format.h>
#include <jit/attention.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "bench_rows.h"
#include "command.h"
#include "device_choice.h"
#include "generator/context_state.h"
#include "generator/problem/arguments.h"
#include "generator/tuning/tuning_buffers.h"
#include "progress.h"
#include "runtime/context.h"
#include "runtime/timer.h"
#include "useful_work.h"

namespace jit::tool {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  ProblemOptions problem;
  RowOptions rows;
  int samples = 30;
  bool as_json = false;
};

// Does `step` for each row that has no trouble; a failure becomes the row's.
template <class Step>
void for_each_sound(std::vector<BenchRow>& rows, const Step& step) {
  for (BenchRow& row : rows) {
    if (!row.trouble.empty()) continue;
    try {
      step(row);
    } catch (const Error& error) {
      row.trouble = one_line(error.message());
    }
  }
}

// Every kernel is checked against the reference before it is timed; samples are interleaved over the rows, so
// that clocks and temperature favour none.
void measure(std::vector<BenchRow>& rows, const AttentionParams& params, const Options& options,
             const Problem& problem, const Context& context, const DeviceInfo& device,
             ProgressLine& progress) {
  ContextState& state = *context.state();
  EventTimer timer(device.ordinal);
  const TuningBuffers buffers(state, {.spec = problem.spec, .device = device, .params = params},
                              timer.stream());
  if (buffers.params().batch != problem.batch) {
    throw BadInput(
        fmt::format("only {} of --batch {} fit the memory", buffers.params().batch, problem.batch));
  }
  compile_rows(rows, problem.spec, native_target(device), state, progress);
  for_each_sound(rows, [&](BenchRow& row) {
    row.plan = make_plan(state, problem.spec, {row.config, row.image}, device.ordinal, row.why);
    row.image = row.plan->steps.front().kernel.image;
    row.trouble = buffers.check(*row.plan, timer.stream());
  });
  AttentionParams launched = buffers.params();
  for (int sample = 0; sample < options.samples; ++sample) {
    progress.show("measuring", sample, options.samples);
    for_each_sound(rows, [&](BenchRow& row) {
      const auto work = [&](CUstream stream) { run_plan(*row.plan, launched, state.memory, stream); };
      row.samples_us.push_back(static_cast<float>(timer.measure(work, 0, 1).median_us));
    });
  }
}

void print_text(const Json& report) {
  fmt::print("{} on {}\n", report["spec"].get<std::string>(), report["device"].get<std::string>());
  fmt::print("batch {}, {} heads, {} queries, {} keys; {}\n\n", report["batch"].get<int>(),
             report["heads"].get<int>(), report["seqlen_q"].get<int>(), report["seqlen_kv"].get<int>(),
             report["counted"].get<std::string>());
  fmt::print("{:<16} {:>10} {:>9} {:>7} {:>5} {:>7}  {}\n", "name", "median us", "TFLOP/s", "spread", "regs",
             "spilled", "config and why");
  for (const Json& row : report["rows"]) {
    const std::string name = row["name"].get<std::string>();
    if (row.contains("trouble")) {
      fmt::print("{:<16} {}; {}\n", name, row["trouble"].get<std::string>(),
                 row["config"].get<std::string>());
      continue;
    }
    fmt::print("{:<16} {:>10.2f} {:>9.1f} {:>6.1f}% {:>5} {:>7}  {}; {}\n", name,
               row["median_us"].get<double>(), row["tflops"].get<double>(), row["spread"].get<double>() * 100,
               row["registers"].get<int>(), row["spill_bytes"].get<int>(), row["config"].get<std::string>(),
               row["why"].get<std::string>());
  }
}

int run_bench(const Options& options) {
  const Problem problem = build_problem(options.problem);
  validate(options.rows);
  const DeviceInfo device = choose_timed_device(options.problem.device, "bench");
  ProgressLine progress;
  const Context context(settings_from_environment(), progress.observer());
  const CurrentContext scope(device.ordinal);
  const DeviceTensors tensors(device.ordinal, problem.tensors);
  AttentionParams params;
  fill_params(problem.spec, functor_tensor_uses(problem.spec),
              placeholder_arguments(problem, tensors.addresses()), params);
  std::vector<BenchRow> rows =
      choose_rows(options.rows, problem.spec, shape_of(params), device_limits(device));
  if (options.rows.wants_chosen()) {
    const CompiledKernel chosen =
        attention(problem.spec, {}, context).kernel(placeholder_arguments(problem, tensors.addresses()));
    rows.push_back({.name = "chosen", .why = chosen.why(), .config = chosen.config()});
  }
  measure(rows, params, options, problem, context, device, progress);

  const std::optional<double> share = kept_share(problem);
  Json report = {
      {"device", device.name},
      {"spec", to_string(problem.spec)},
      {"batch", problem.batch},
      {"heads", problem.heads},
      {"seqlen_q", problem.seqlen_q},
      {"seqlen_kv", problem.seqlen_kv},
      {"counted", share ? fmt::format("counted are the {:.2f} % of pairs that the mask keeps", *share * 100)
                        : "all pairs are counted, since the mask is text"},
      {"rows", Json::array()}};
  bool any_wrong = false, any_timed = false;
  for (const BenchRow& row : rows) {
    report["rows"].push_back(describe_row(row, useful_flops(problem, share.value_or(1))));
    any_wrong = any_wrong || row.trouble.starts_with("wrong");
    any_timed = any_timed || row.trouble.empty();
  }
  if (options.as_json) {
    print_json(report);
  } else {
    print_text(report);
  }
  return any_timed && !any_wrong ? status_ok : status_failure;
}

}  // namespace

void add_bench(CLI::App& app, Commands& commands) {
  const auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("bench", "Time kernels on the GPU: random data, cold L2 cache");
  add_problem_options(*command, options->problem);
  add_row_options(*command, options->rows);
  command->add_option("--samples", options->samples, "Timed launches of each kernel")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  command->add_flag("--json", options->as_json, "Print JSON");
  commands.push_back({command, [options] { return run_bench(*options); }});
}

}  // namespace jit::tool
