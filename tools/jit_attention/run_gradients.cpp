#include "run_gradients.h"

#include <algorithm>
#include <tuple>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include "command.h"
#include "functor_file.h"
#include "operand_files.h"
#include "run_arrays.h"

namespace jit::tool {

void add_gradient_options(CLI::App& app, GradientOptions& options) {
  CLI::Option* backward =
      app.add_flag("--backward", options.backward, "Compute the gradients of --q, --k and --v, too");
  const auto add_file = [&](const char* name, std::string& path, const char* text) {
    return app.add_option(name, path, text)->check(must_not_be_empty)->needs(backward);
  };
  for (const auto& [name, path, text] :
       {std::tuple{"--do", &options.d_o, "Gradient of the output, of its shape"},
        {"--dq", &options.dq, "File for the gradient of --q"},
        {"--dk", &options.dk, "File for the gradient of --k"},
        {"--dv", &options.dv, "File for the gradient of --v"}})
    backward->needs(add_file(name, *path, text));
  add_file("--dlse", options.d_lse, "Gradient of the log-sum-exp, of its shape");
  add_file("--d-sinks", options.d_sinks, "File for the gradient of --sinks, float32 (heads)")
      ->needs(app.get_option("--sinks"));
  app.add_option("--d-tensor", options.d_tensors,
                 "name=file.npy: file for the gradient of a --tensor that the score reads, float32, or "
                 "float16 for a float16 tensor")
      ->allow_extra_args(false)
      ->needs(backward)
      ->needs(app.get_option("--tensor"));
  CLI::Option* o = add_file(
      "--forward-out", options.o,
      "File that --out wrote for the same inputs, in place of computing it again; with --forward-lse");
  CLI::Option* lse = add_file("--forward-lse", options.lse, "File that --lse wrote for the same inputs");
  o->needs(lse);
  lse->needs(o);
  app.add_flag("--deterministic", options.deterministic,
               "Deterministic gradients: bitwise identical for equal inputs")
      ->needs(backward);
}

std::vector<std::string> input_files(const GradientOptions& options) {
  std::vector<std::string> inputs;
  for (const std::string* path : {&options.d_o, &options.d_lse, &options.o, &options.lse})
    if (!path->empty()) inputs.push_back(*path);
  return inputs;
}

void read_gradients(const GradientOptions& options, const AttentionSpec& spec, RunArrays& arrays) {
  const auto rows = [&](const std::string& path) { return convert(read_operand(path), spec.dtype, path); };
  const auto numbers = [&](const std::string& path) {
    return read_as(path, DType::fp32, arrays.lse.shape.size(),
                   is_varlen(arrays.q) ? "(heads, rows of all sequences)" : "(batch, heads, seqlen)");
  };
  const auto like = [](const Array& array) { return zeros(array.dtype, array.shape); };
  Gradients& gradients = arrays.gradients;
  gradients = {.d_o = rows(options.d_o),
               .d_lse = {},
               .dq = like(arrays.q),
               .dk = like(arrays.k),
               .dv = like(arrays.v),
               .d_sinks = {},
               .d_tensors = {}};
  if (!options.d_lse.empty()) gradients.d_lse = numbers(options.d_lse);
  if (!options.d_sinks.empty()) gradients.d_sinks = like(arrays.sinks);
  for (const std::string& argument : options.d_tensors) {
    const std::string name = split_assignment("--d-tensor", argument).first;
    const auto tensor = arrays.tensors.find(name);
    if (tensor == arrays.tensors.end())
      throw BadInput(
          fmt::format("--d-tensor: there is no --tensor {}; give it, or leave its gradient out", name));
    if (!gradients.d_tensors.emplace(name, like(tensor->second)).second)
      throw BadInput(fmt::format("--d-tensor {} is given twice", name));
  }
  if (!options.has_forward()) return;
  arrays.o = rows(options.o);
  arrays.lse = numbers(options.lse);
}

std::vector<RunOutput> outputs_of(const GradientOptions& options, Gradients& gradients) {
  std::vector<RunOutput> outputs;
  for (const auto& [option, path, array] : {std::tuple{"--dq", &options.dq, &gradients.dq},
                                            {"--dk", &options.dk, &gradients.dk},
                                            {"--dv", &options.dv, &gradients.dv},
                                            {"--d-sinks", &options.d_sinks, &gradients.d_sinks}})
    if (!path->empty()) outputs.push_back({option, *path, array});
  for (const std::string& argument : options.d_tensors) {
    const auto [name, path] = split_assignment("--d-tensor", argument);
    outputs.push_back({"--d-tensor " + name, path, &gradients.d_tensors[name]});
  }
  return outputs;
}

}  // namespace jit::tool
