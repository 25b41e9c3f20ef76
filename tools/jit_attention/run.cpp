// jit-attention run: attention over arrays in files.
#include <algorithm>
#include <map>
#include <memory>

#include <fmt/format.h>
#include <jit/attention.h>
#include <jit/device.h>
#include <jit/emulation.h>
#include <jit/spec_table.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "command.h"
#include "device_choice.h"
#include "functor_file.h"
#include "npy.h"
#include "output_files.h"
#include "problem.h"
#include "progress.h"
#include "trace_files.h"

namespace jit::tool {
namespace {

struct Options {
  FunctorOptions functors;
  std::string dtype = "bf16";
  std::string config;
  std::string q, k, v, o, lse;
  std::vector<std::string> tensors;  ///< "name=path"
  std::string device = "auto";
  TraceFiles traces;
  bool as_json = false;
};

struct Arrays {
  Array q, k, v, o, lse;
  NamedArrays tensors;
};

Array read_operand(const std::string& path) {
  Array array = read_npy(path);
  if (array.dtype != DType::fp32 && array.dtype != DType::fp16) {
    throw BadInput(fmt::format("{} is {}; it must be float32 or float16", path, describe(array)));
  }
  if (array.shape.size() != 4) {
    throw BadInput(
        fmt::format("{} is {}; its shape must be (batch, seqlen, heads, head_dim)", path, describe(array)));
  }
  return array;
}

int head_dim_of(const Array& array, const std::string& path) {
  constexpr std::int64_t absurd = 1 << 20;  // the exact rule is validate()'s
  if (array.shape[3] > absurd) throw BadInput(fmt::format("{} has head_dim {}", path, array.shape[3]));
  return static_cast<int>(array.shape[3]);
}

AttentionSpec derive_spec(const Options& options, const Arrays& arrays) {
  AttentionSpec spec;
  spec.dtype = parse_dtype(options.dtype);
  spec.head_dim = head_dim_of(arrays.q, options.q);
  spec.head_dim_v = head_dim_of(arrays.v, options.v);
  const std::int64_t heads_q = arrays.q.shape[2], heads_kv = arrays.k.shape[2];
  if (heads_q == 0 || heads_kv == 0 || heads_q % heads_kv != 0 || heads_q / heads_kv > 1 << 20) {
    throw BadInput(fmt::format("{} has {} heads and {} has {}; the first must be a multiple of the second",
                               options.q, heads_q, options.k, heads_kv));
  }
  spec.gqa_ratio = static_cast<int>(heads_q / heads_kv);
  apply(options.functors, spec);
  validate(spec);
  return spec;
}

// The arguments with every array where `place` puts it; an lse without path is left out.
template <class Place>
AttentionArguments arguments_of(Arrays& arrays, bool with_lse, const Place& place) {
  AttentionArguments arguments{.q = view(arrays.q, place(arrays.q)),
                               .k = view(arrays.k, place(arrays.k)),
                               .v = view(arrays.v, place(arrays.v)),
                               .o = view(arrays.o, place(arrays.o))};
  if (with_lse) arguments.lse = view(arrays.lse, place(arrays.lse));
  for (auto& [name, array] : arrays.tensors) arguments.tensors.add({name, view(array, place(array))});
  return arguments;
}

// Fills o and lse. Returns the kernel that did it.
CompiledKernel compute(const Options& options, const AttentionSpec& spec, const DeviceInfo& device,
                       const OutputFiles& outputs, Arrays& arrays) {
  ProgressLine progress;
  Settings settings = settings_from_environment();
  // One call does not repay tuning: `tune` does that, and what it found is used here.
  if (settings.tuning != TuningMode::off) settings.tuning = TuningMode::recorded;
  const Context context(settings, progress.observer());
  const CurrentDevice scope(device.ordinal);
  progress.show("compiling", 0, 0);
  const Attention attention =
      jit::attention(spec, build_config(options.config, spec, native_arch(device)), context);
  progress.show("computing", 0, 0);
  std::map<const Array*, DeviceBuffer> buffers;
  const AttentionArguments arguments = arguments_of(arrays, !options.lse.empty(), [&](const Array& array) {
    DeviceBuffer buffer(device.ordinal, std::max<std::size_t>(16, array.bytes.size()));
    buffer.upload(array.bytes.data(), array.bytes.size());
    return buffers.emplace(&array, std::move(buffer)).first->second.data();
  });
  if (!options.traces.any()) {
    attention(arguments);
  } else {
    const TraceScope trace;
    try {
      attention(arguments);
    } catch (const Error&) {  // they are wanted most when something was found
      write_traces(outputs, trace.launches());
      throw;
    }
    write_traces(outputs, trace.launches());
  }
  buffers.at(&arrays.o).download(arrays.o.bytes.data(), arrays.o.bytes.size());
  if (!options.lse.empty()) {
    buffers.at(&arrays.lse).download(arrays.lse.bytes.data(), arrays.lse.bytes.size());
  }
  return attention.kernel(arguments);
}

OutputFiles open_outputs(const Options& options) {
  OutputFiles outputs;
  outputs.add("--out", options.o);
  outputs.add("--lse", options.lse);
  add_outputs(options.traces, outputs);
  std::vector<std::string> inputs = input_files(options.functors);
  inputs.insert(inputs.end(), {options.q, options.k, options.v});
  for (const std::string& tensor : options.tensors)
    inputs.push_back(split_assignment("--tensor", tensor).second);
  refuse_overwriting(outputs.paths(), inputs);
  return outputs;
}

int run_run(const Options& options) {
  const OutputFiles outputs = open_outputs(options);
  Arrays arrays{.q = read_operand(options.q),
                .k = read_operand(options.k),
                .v = read_operand(options.v),
                .o = {},
                .lse = {},
                .tensors = {}};
  const DType result_dtype = arrays.q.dtype;
  const AttentionSpec spec = derive_spec(options, arrays);
  arrays.q = convert(std::move(arrays.q), spec.dtype, options.q);
  arrays.k = convert(std::move(arrays.k), spec.dtype, options.k);
  arrays.v = convert(std::move(arrays.v), spec.dtype, options.v);
  const std::vector<std::int64_t>& shape = arrays.q.shape;
  arrays.o = zeros(output_dtype(spec), {shape[0], shape[1], shape[2], spec.value_head_dim()});
  arrays.lse = zeros(DType::fp32, {shape[0], shape[2], shape[1]});
  arrays.tensors = read_tensors(options.tensors, spec);

  // All that can be wrong with the input is found before a device is looked for.
  check_arguments(spec, arguments_of(arrays, true, [](Array& array) -> void* { return array.bytes.data(); }));

  const DeviceInfo device = choose_device(options.device);
  if (!device.emulated && options.traces.any()) {
    throw BadInput(
        fmt::format("--counts and --listing tell what an emulated device did, and {} is none: add --device "
                    "emulated:{}",
                    device.name, to_string(native_arch(device))));
  }
  const CompiledKernel kernel = compute(options, spec, device, outputs, arrays);
  const Array o = convert(std::move(arrays.o), result_dtype, options.o);
  write_npy(*outputs.find("--out"), o);
  if (const OutputFile* lse = outputs.find("--lse")) write_npy(*lse, arrays.lse);
  if (options.as_json) {
    print_json({{"written", outputs.paths()},
                {"device", device.name},
                {"kernel", nlohmann::ordered_json::parse(kernel.report())}});
    return status_ok;
  }
  fmt::print("{}: {}\n", options.o, describe(o));
  if (!options.lse.empty()) fmt::print("{}: {}\n", options.lse, describe(arrays.lse));
  fmt::print("computed as {} on {} with {} ({})\n", to_string(spec), device.name, to_string(kernel.config()),
             kernel.why());
  return status_ok;
}

}  // namespace

void add_run(CLI::App& app, Commands& commands) {
  const auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "run", "Compute attention over .npy arrays (batch, seqlen, heads, head_dim) of float32 or float16");
  command->add_option("--q", options->q, "Queries")->required();
  command->add_option("--k", options->k, "Keys; their heads may be fewer by a whole factor")->required();
  command->add_option("--v", options->v, "Values")->required();
  command->add_option("--out", options->o, "File for the output, of the type of --q")
      ->check(must_not_be_empty)
      ->required();
  command->add_option("--lse", options->lse, "File for the log-sum-exp, float32 (batch, heads, seqlen)")
      ->check(must_not_be_empty);
  command->add_option("--dtype", options->dtype, "What to compute in: bf16 or fp16")->capture_default_str();
  command->add_option("--tensor", options->tensors, "name=file.npy: a tensor that mask or score reads")
      ->allow_extra_args(false);
  add_functor_options(*command, options->functors);
  add_config_option(*command, options->config);
  add_device_option(*command, options->device);
  add_trace_options(*command, options->traces);
  command->add_flag("--json", options->as_json, "Print JSON");
  commands.push_back({command, [options] { return run_run(*options); }});
}

}  // namespace jit::tool
