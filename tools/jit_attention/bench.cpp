// jit-attention bench: times kernels on the GPU with random data and a cold L2 cache.
#include <memory>
#include <optional>

#include <fmt/format.h>
#include <jit/device.h>
#include <jit/tuning.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "bench_matmul.h"
#include "bench_rows.h"
#include "command.h"
#include "device_choice.h"
#include "number_options.h"
#include "progress.h"
#include "useful_work.h"

namespace jit::tool {
namespace {

using Json = nlohmann::ordered_json;

struct BenchOptions {
  ProblemOptions problem;
  RowOptions rows;
  std::string ladder;  ///< "attention" or "matmul"; empty: none
  MatmulBench matmul;
  int samples = 30;
  int num_splits = 0;
  bool backward = false;
  bool deterministic = false;
  bool as_json = false;
};

// Sets the arguments that the rows' configs need.
template <class Arguments>
void measure(std::vector<BenchRow>& rows, const Problem& problem, const Arguments& arguments, int samples,
             const Context& context) {
  std::vector<PlanConfigs> configs;
  for (const BenchRow& row : rows) configs.push_back(row.configs);
  std::vector<ConfigTiming> timings = time_configs(problem.spec, arguments, configs, samples, context);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i].kernels = std::move(timings[i].kernels);
    rows[i].trouble = one_line(std::move(timings[i].trouble));
    rows[i].timing = std::move(timings[i].timing);
  }
}

// The row of the config that a call would run.
BenchRow chosen_row(const Attention& attention, const AttentionArguments& arguments) {
  const CompiledKernel chosen = attention.kernel(arguments);
  return {.name = "chosen", .why = chosen.why(), .configs = {chosen.config()}};
}
BenchRow chosen_row(const Attention& attention, const BackwardArguments& arguments) {
  BenchRow row{.name = "chosen", .why = {}, .configs = {}};
  for (const CompiledKernel& kernel : attention.backward_kernels(arguments)) {
    row.why = kernel.why();
    // Kernels around a one-pass kernel share its config.
    if (row.configs.empty() || row.configs.back() != kernel.config()) row.configs.push_back(kernel.config());
  }
  return row;
}

template <class Arguments>
std::vector<BenchRow> timed_rows(const BenchOptions& options, const Problem& problem,
                                 const Arguments& arguments, const DeviceInfo& device,
                                 const Context& context) {
  std::vector<BenchRow> rows = choose_rows(options.rows, problem.spec, arguments, device);
  if (options.rows.wants_chosen())
    rows.push_back(chosen_row(attention_when_called(problem.spec, context), arguments));
  measure(rows, problem, arguments, options.samples, context);
  return rows;
}

void print_rows(const Json& report) {
  print("{} on {}\n", report["spec"].get<std::string>(), report["device"].get<std::string>());
  print("batch {}, {} heads, {} queries, {} keys; {}\n\n", report["batch"].get<int>(),
        report["heads"].get<int>(), report["seqlen_q"].get<int>(), report["seqlen_kv"].get<int>(),
        report["counted"].get<std::string>());
  print("{:<16} {:>10} {:>9} {:>7} {:>5} {:>7}  {}\n", "name", "median us", "TFLOP/s", "spread", "regs",
        "spilled", "config and why");
  for (const Json& row : report["rows"]) {
    const std::string name = row["name"].get<std::string>();
    if (row.contains("trouble")) {
      print("{:<16} {}; {}\n", name, row["trouble"].get<std::string>(), row["config"].get<std::string>());
      continue;
    }
    print("{:<16} {:>10.2f} {:>9.1f} {:>6.1f}% {:>5} {:>7}  {}; {}\n", name, row["median_us"].get<double>(),
          row["tflops"].get<double>(), row["spread"].get<double>() * 100, row["registers"].get<int>(),
          row["spill_bytes"].get<int>(), row["config"].get<std::string>(), row["why"].get<std::string>());
  }
}

int run_bench(BenchOptions& options, const CLI::App& app) {
  const bool is_matmul = options.ladder == "matmul";
  check_ladder_options(app, is_matmul);
  if (is_matmul)
    return bench_matmul(options.matmul, options.problem.device, options.samples, options.as_json);
  options.rows.ladder = !options.ladder.empty();
  Problem problem = build_problem(options.problem);
  validate(options.rows);
  // Refuse specs without gradients before searching for a device.
  if (options.backward) sized_backward_arguments(problem.spec, shape_of(problem));
  if (options.backward && options.rows.ladder)
    throw BadInput("--ladder is of forward; leave it or --backward out");
  const DeviceInfo device = choose_timed_device(options.problem.device, "bench");
  ProgressLine progress;
  const Context context(settings_from_environment(), progress.observer());
  const CurrentDevice scope(device.ordinal);
  DeviceTensors tensors(device.ordinal, problem.tensors);
  tensors.make_block_mask(problem, context);
  std::vector<BenchRow> rows;
  if (options.backward) {
    BackwardArguments arguments = placeholder_backward_arguments(problem, tensors.addresses());
    arguments.deterministic = options.deterministic;
    rows = timed_rows(options, problem, arguments, device, context);
  } else {
    AttentionArguments arguments = placeholder_arguments(problem, tensors.addresses());
    arguments.num_splits = options.num_splits;
    rows = timed_rows(options, problem, arguments, device, context);
  }

  const std::optional<double> share = mask_density(problem);
  Json report = {
      {"device", device.name},
      {"spec", to_string(problem.spec)},
      {"backward", options.backward},
      {"batch", problem.batch},
      {"heads", problem.heads},
      {"seqlen_q", problem.seqlen_q},
      {"seqlen_kv", problem.seqlen_kv},
      {"counted", share ? fmt::format("counted are the {:.2f} % of pairs that the mask keeps", *share * 100)
                        : "all pairs are counted, since the mask is text"},
      {"rows", Json::array()}};
  bool any_wrong = false, any_timed = false;
  for (const BenchRow& row : rows) {
    report["rows"].push_back(describe_row(row, useful_flops(problem, share.value_or(1), options.backward)));
    any_wrong = any_wrong || row.trouble.starts_with("wrong");
    any_timed = any_timed || row.trouble.empty();
  }
  if (options.as_json) {
    print_json(report);
  } else {
    print_rows(report);
  }
  return any_timed && !any_wrong ? status_ok : status_failure;
}

}  // namespace

void add_bench(CLI::App& app, Commands& commands) {
  const auto options = std::make_shared<BenchOptions>();
  CLI::App* command = app.add_subcommand("bench", "Time kernels on the GPU: random data, cold L2 cache");
  add_problem_options(*command, options->problem);
  add_row_options(*command, options->rows);
  command
      ->add_option("--ladder", options->ladder,
                   "Time the steps of a ladder: of attention (the default), interleaved with the other "
                   "kernels, or of a matrix product (matmul), beside cuBLAS; an emulated device counts "
                   "instructions of the latter instead")
      ->expected(0, 1)
      ->default_str("attention")
      ->check(CLI::IsMember({"attention", "matmul"}));
  add_matmul_options(*command, options->matmul);
  add_whole_option(*command, "--samples", options->samples, "Timed launches of each kernel", {1, 100000})
      ->capture_default_str();
  CLI::Option* const backward = command->add_flag("--backward", options->backward,
                                                  "Kernels of the backward pass: gradients of q, k and v");
  command
      ->add_flag("--deterministic", options->deterministic,
                 "Deterministic gradients: bitwise identical for equal inputs")
      ->needs(backward);
  add_whole_option(
      *command, "--num-splits", options->num_splits,
      "Largest number of blocks that share the keys of a tile of queries; 0: chosen by the library",
      {0, 1 << 20})
      ->capture_default_str()
      ->excludes(backward);
  command->add_flag("--json", options->as_json, "Print JSON");
  commands.push_back({command, [options, command] { return run_bench(*options, *command); }});
}

}  // namespace jit::tool
