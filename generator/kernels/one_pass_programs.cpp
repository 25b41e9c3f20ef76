// Programs of the kernels around a one-pass kernel. Their occupancy limits registers to what all but large
// rows need.
#include <fmt/format.h>
#include <jit/spec_table.h>

#include "generator/kernels/one_pass.h"
#include "generator/program/emit.h"
#include "generator/program/functor_source.h"

namespace jit::one_pass {
namespace {

// Threads for an output functor hold its inputs twice.
constexpr int blocks_with_output = 2;

// A kernel that runs `body`, with includes of `files`.
Program side_program(const AttentionSpec& spec, const SideText& text, std::string_view entry,
                     const std::vector<std::string>& files, std::string_view more_params,
                     std::string_view body) {
  const FunctorSource functors = functor_source(spec, ScoreNumbers::duals);
  Program program;
  program.threads = text.threads;
  program.name = fmt::format("{}_{}", entry, text.config_name);
  program.facts = {{"spec", to_string(spec)}, {"config", to_string(text.facts)}};
  std::string& source = program.source;
  source = fmt::format("// Attention backward, {}: {}. Generated: change the spec, not this file.\n",
                       text.what, to_string(spec));
  for (const std::string& file : files) source += fmt::format("#include \"{}.cuh\"\n", file);
  source += "\nusing namespace jit;\n\n" + functors.definitions;
  source += fmt::format("struct Config {{\n{}}};\n", text.config);
  source += params_assertion() + gradient_params_assertion() + functors.assertions;
  source += fmt::format(
      "\nextern \"C\" __global__ void __launch_bounds__({}, {})\n"
      "{}(const __grid_constant__ AttentionParams params, const __grid_constant__ GradientParams "
      "gradients{}) {{\n{}}}\n",
      text.threads, text.blocks_per_sm, program.name, more_params, body);
  return program;
}

}  // namespace

Program prepare_program(const AttentionSpec& spec, const SideText& text, bool deterministic) {
  std::vector<std::string> files = {"backward/prepare", fmt::format("{}/traits", text.family)};
  const std::string traits = fmt::format("{}::KernelTraits<Config>", text.family);
  std::string body;
  if (deterministic) {
    files.push_back("backward/prepare_turns");
    body = fmt::format("  prepare_turns<{}>(params, gradients, turns);\n", traits);
  }
  const bool has_output = !spec.output.is_none();
  body += fmt::format("  prepare_backward<{}>(params, gradients{});\n", traits, has_output ? ", raw" : "");
  std::string more = deterministic ? ", const __grid_constant__ Turns turns" : "";
  if (has_output) more += ", const __grid_constant__ RawGradient raw";
  SideText own = text;
  if (has_output) own.blocks_per_sm = blocks_with_output;
  Program program = side_program(spec, own, "prepare_backward", files, more, body);
  program.may_fuse = !has_output;
  return program;
}

Program convert_program(const AttentionSpec& spec, const SideText& text) {
  return side_program(spec, text, "convert_dq", {fmt::format("{}/convert_dq", text.family)}, "",
                      fmt::format("  {}::convert_dq<Config>(params, gradients);\n", text.family));
}

}  // namespace jit::one_pass
