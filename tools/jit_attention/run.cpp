// jit-attention run: attention over arrays in files.
#include <algorithm>
#include <map>
#include <memory>
#include <optional>
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
#include "run_arguments.h"
#include "trace_files.h"

namespace jit::tool {
namespace {

struct RunCommandOptions {
  RunOptions inputs;
  std::string config;
  std::string o, lse;
  std::string device;
  TraceFiles traces;
  bool as_json = false;
};

// Device copies of arrays, made on demand.
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

// The requested outputs; the arrays may still be unread.
std::vector<RunOutput> outputs_of(const RunCommandOptions& options, RunArrays& arrays) {
  std::vector<RunOutput> outputs;
  if (!options.o.empty()) outputs.push_back({"--out", options.o, &arrays.o});
  if (!options.lse.empty()) outputs.push_back({"--lse", options.lse, &arrays.lse});
  for (RunOutput& output : outputs_of(options.inputs.gradients, arrays.gradients))
    outputs.push_back(std::move(output));
  return outputs;
}

// Kernels that have run.
struct RunKernels {
  std::vector<CompiledKernel> forward, backward;
};

// Computes the requested outputs.
RunKernels compute(const RunCommandOptions& options, const DeviceInfo& device, const OutputFiles& outputs,
                   RunProblem& problem) {
  ProgressLine progress;
  Settings settings = settings_from_environment();
  // One call does not repay tuning, but uses the records of `tune`.
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
  std::optional<AttentionArguments> forward;
  if (!problem.has_forward) forward = forward_arguments(problem, with_lse, place);
  std::optional<BackwardArguments> backward;
  if (problem.backward) backward = backward_arguments(problem, place);
  const auto launch = [&] {
    if (forward) attention(*forward);
    if (backward) attention.backward(*backward);
  };
  if (!options.traces.any()) {
    launch();
  } else {
    const TraceScope trace;
    try {
      launch();
    } catch (const Error&) {  // counts are most useful when something was found
      write_traces(outputs, trace.launches());
      throw;
    }
    write_traces(outputs, trace.launches());
  }
  for (const RunOutput& output : outputs_of(options, problem.arrays)) memory.fetch(*output.array);
  RunKernels kernels;
  if (forward) kernels.forward.push_back(attention.kernel(*forward));
  if (backward) kernels.backward = attention.backward_kernels(*backward);
  return kernels;
}

OutputFiles open_outputs(const RunCommandOptions& options) {
  if (options.o.empty() && !options.inputs.gradients.has_forward()) throw BadInput("--out is required");
  OutputFiles outputs;
  RunArrays unread;
  for (const RunOutput& output : outputs_of(options, unread)) outputs.add(output.option, output.path);
  add_outputs(options.traces, outputs);
  refuse_overwriting(outputs.paths(), input_files(options.inputs));
  return outputs;
}

// Gradients of a score's tensors keep their type if a file supports it; gradients of rows and heads are
// float32.
DType file_dtype(const RunProblem& problem, const Array& array) {
  const RunArrays& arrays = problem.arrays;
  const Gradients& gradients = arrays.gradients;
  for (const Array* rows : {&arrays.o, &gradients.dq, &gradients.dk, &gradients.dv})
    if (&array == rows) return problem.result_dtype;
  return array.dtype == DType::fp16 ? DType::fp16 : DType::fp32;
}

int run_run(const RunCommandOptions& options) {
  const OutputFiles outputs = open_outputs(options);
  RunProblem problem = read_problem(options.inputs);
  check(problem);  // finds all input errors before searching for a device

  const DeviceInfo device = choose_device(options.device);
  if (!device.emulated && options.traces.any()) {
    throw BadInput(
        fmt::format("--counts and --listing tell what an emulated device did, and {} is none: add --device "
                    "emulated:{}",
                    device.name, to_string(native_arch(device))));
  }
  const RunKernels kernels = compute(options, device, outputs, problem);
  std::string written;
  for (const RunOutput& output : outputs_of(options, problem.arrays)) {
    Array& array = *output.array;
    const DType dtype = file_dtype(problem, array);
    array = convert(std::move(array), dtype, output.path);
    write_npy(*outputs.find(output.option), array);
    written += fmt::format("{}: {}\n", output.path, describe(array));
  }
  if (options.as_json) {
    nlohmann::ordered_json report = {{"written", outputs.paths()}, {"device", device.name}};
    for (const CompiledKernel& kernel : kernels.forward)
      report["kernel"] = nlohmann::ordered_json::parse(kernel.report());
    for (const CompiledKernel& kernel : kernels.backward)
      report["backward_kernels"].push_back(nlohmann::ordered_json::parse(kernel.report()));
    print_json(report);
    return status_ok;
  }
  const auto with = [](const CompiledKernel& kernel) {
    return fmt::format(" with {} ({})\n", to_string(kernel.config()), kernel.why());
  };
  print("{}computed as {} on {}{}", written, to_string(problem.spec), device.name,
        kernels.forward.empty() ? "\n" : with(kernels.forward[0]));
  std::string backward;  // a config that several kernels share appears once
  for (const CompiledKernel& kernel : kernels.backward)
    if (const std::string line = "backward" + with(kernel); backward.find(line) == std::string::npos)
      backward += line;
  print("{}", backward);
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
  CLI::Option* o = command->add_option("--out", options->o, "File for the output, of the type of --q")
                       ->check(must_not_be_empty);
  CLI::Option* lse =
      command
          ->add_option(
              "--lse", options->lse,
              "File for the log-sum-exp, float32 (batch, heads, seqlen) or (heads, rows of all sequences)")
          ->check(must_not_be_empty);
  command->get_option("--forward-out")->excludes(o)->excludes(lse);
  add_config_option(*command, options->config);
  add_device_option(*command, options->device);
  add_trace_options(*command, options->traces);
  command->add_flag("--json", options->as_json, "Print JSON");
  commands.push_back({command, [options] { return run_run(*options); }});
}

}  // namespace jit::tool
