// jit-attention run: attention over arrays in files.
#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <jit/attention.h>
#include <jit/block_mask.h>
#include <jit/device.h>
#include <jit/emulation.h>
#include <jit/quantize.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "command.h"
#include "device_choice.h"
#include "npy.h"
#include "output_files.h"
#include "progress.h"
#include "run_arrays.h"
#include "trace_files.h"

namespace jit::tool {
namespace {

struct RunCommandOptions {
  RunOptions inputs;
  std::string config;
  std::string o, lse, dq, dk, dv;
  std::string device = "auto";
  TraceFiles traces;
  bool as_json = false;
};

// Copies of arrays in device memory, made when they are asked for.
class DeviceArrays {
 public:
  explicit DeviceArrays(int device) : device_(device) {}

  void* place(const Array& array) {
    const auto known = buffers_.find(&array);
    if (known != buffers_.end()) return known->second.data();
    DeviceBuffer buffer(device_, std::max<std::size_t>(16, array.bytes.size()));
    buffer.upload(array.bytes.data(), array.bytes.size());
    return buffers_.emplace(&array, std::move(buffer)).first->second.data();
  }

  void fetch(Array& array) const { buffers_.at(&array).download(array.bytes.data(), array.bytes.size()); }

 private:
  int device_;
  std::map<const Array*, DeviceBuffer> buffers_;
};

// Fills what is written. Returns the kernels that did it.
std::vector<CompiledKernel> compute(const RunCommandOptions& options, const DeviceInfo& device,
                                    const OutputFiles& outputs, RunProblem& problem) {
  ProgressLine progress;
  Settings settings = settings_from_environment();
  // One call does not repay tuning: `tune` does that, and what it found is used here.
  if (settings.tuning != TuningMode::off) settings.tuning = TuningMode::recorded;
  const Context context(settings, progress.observer());
  const CurrentDevice scope(device.ordinal);
  progress.show("compiling", 0, 0);
  const AttentionSpec& spec = problem.spec;
  const Attention attention =
      jit::attention(spec, build_config(options.config, spec, native_arch(device)), context);
  progress.show("computing", 0, 0);
  DeviceArrays memory(device.ordinal);
  const Place place = [&](Array& array) { return memory.place(array); };
  if (problem.quantizer) quantize_qkv(problem.quantizer->spec, context)(quantize_arguments(problem, place));
  if (problem.block_map) block_mask(problem.block_map->spec, context)(block_mask_arguments(problem, place));
  const bool with_lse = !options.lse.empty() || problem.backward;
  const AttentionArguments forward = forward_arguments(problem, with_lse, place);
  std::optional<BackwardArguments> backward;
  if (problem.backward) backward = backward_arguments(problem, place);
  const auto launch = [&] {
    attention(forward);
    if (backward) attention.backward(*backward);
  };
  if (!options.traces.any()) {
    launch();
  } else {
    const TraceScope trace;
    try {
      launch();
    } catch (const Error&) {  // they are wanted most when something was found
      write_traces(outputs, trace.launches());
      throw;
    }
    write_traces(outputs, trace.launches());
  }
  RunArrays& arrays = problem.arrays;
  memory.fetch(arrays.o);
  if (with_lse) memory.fetch(arrays.lse);
  std::vector<CompiledKernel> kernels = {attention.kernel(forward)};
  if (!backward) return kernels;
  for (Array* gradient : {&arrays.dq, &arrays.dk, &arrays.dv}) memory.fetch(*gradient);
  for (CompiledKernel& kernel : attention.backward_kernels(*backward)) kernels.push_back(std::move(kernel));
  return kernels;
}

OutputFiles open_outputs(const RunCommandOptions& options) {
  OutputFiles outputs;
  for (const auto& [option, path] : {std::pair{"--out", &options.o},
                                     {"--lse", &options.lse},
                                     {"--dq", &options.dq},
                                     {"--dk", &options.dk},
                                     {"--dv", &options.dv}})
    outputs.add(option, *path);
  add_outputs(options.traces, outputs);
  refuse_overwriting(outputs.paths(), input_files(options.inputs));
  return outputs;
}

int run_run(const RunCommandOptions& options) {
  const OutputFiles outputs = open_outputs(options);
  RunProblem problem = read_problem(options.inputs);
  check(problem);  // all that can be wrong with the input is found before a device is looked for

  const DeviceInfo device = choose_device(options.device);
  if (!device.emulated && options.traces.any()) {
    throw BadInput(
        fmt::format("--counts and --listing tell what an emulated device did, and {} is none: add --device "
                    "emulated:{}",
                    device.name, to_string(native_arch(device))));
  }
  const std::vector<CompiledKernel> kernels = compute(options, device, outputs, problem);
  RunArrays& arrays = problem.arrays;
  std::string written;
  for (const auto& [option, path, array] : {std::tuple{"--out", &options.o, &arrays.o},
                                            {"--lse", &options.lse, &arrays.lse},
                                            {"--dq", &options.dq, &arrays.dq},
                                            {"--dk", &options.dk, &arrays.dk},
                                            {"--dv", &options.dv, &arrays.dv}}) {
    const OutputFile* file = outputs.find(option);
    if (file == nullptr) continue;
    if (array != &arrays.lse) *array = convert(std::move(*array), problem.result_dtype, *path);
    write_npy(*file, *array);
    written += fmt::format("{}: {}\n", *path, describe(*array));
  }
  if (options.as_json) {
    nlohmann::ordered_json report = {{"written", outputs.paths()},
                                     {"device", device.name},
                                     {"kernel", nlohmann::ordered_json::parse(kernels[0].report())}};
    for (std::size_t i = 1; i < kernels.size(); ++i)
      report["backward_kernels"].push_back(nlohmann::ordered_json::parse(kernels[i].report()));
    print_json(report);
    return status_ok;
  }
  fmt::print("{}computed as {} on {} with {} ({})\n", written, to_string(problem.spec), device.name,
             to_string(kernels[0].config()), kernels[0].why());
  for (std::size_t i = 1; i < kernels.size(); ++i)
    fmt::print("backward with {} ({})\n", to_string(kernels[i].config()), kernels[i].why());
  return status_ok;
}

}  // namespace

void add_run(CLI::App& app, Commands& commands) {
  const auto options = std::make_shared<RunCommandOptions>();
  CLI::App* command = app.add_subcommand("run",
                                         "Compute attention over .npy arrays of float32, float16 or bytes of "
                                         "fp8: (batch, seqlen, heads, head_dim), or (rows of all sequences, "
                                         "heads, head_dim), or a paged cache");
  add_run_input_options(*command, options->inputs);
  command->add_option("--out", options->o, "File for the output, of the type of --q")
      ->check(must_not_be_empty)
      ->required();
  command
      ->add_option(
          "--lse", options->lse,
          "File for the log-sum-exp, float32 (batch, heads, seqlen) or (heads, rows of all sequences)")
      ->check(must_not_be_empty);
  CLI::Option* backward = command->get_option("--backward");
  for (const auto& [name, path, text] : {std::tuple{"--dq", &options->dq, "File for the gradient of --q"},
                                         {"--dk", &options->dk, "File for the gradient of --k"},
                                         {"--dv", &options->dv, "File for the gradient of --v"}}) {
    CLI::Option* option = command->add_option(name, *path, text)->check(must_not_be_empty);
    option->needs(backward);
    backward->needs(option);
  }
  add_config_option(*command, options->config);
  add_device_option(*command, options->device);
  add_trace_options(*command, options->traces);
  command->add_flag("--json", options->as_json, "Print JSON");
  commands.push_back({command, [options] { return run_run(*options); }});
}

}  // namespace jit::tool
