#include "generator/kernels/backward_pass.h"

#include <algorithm>

#include "generator/program/functor_source.h"
#include "templates/base/element.cuh"

namespace jit {

int backward_register_doubt(const AttentionSpec& spec) {
  return padded_head_dim(std::max(spec.head_dim, spec.value_head_dim())) <= 64 ? 16 : 40;
}

Program backward_pass_program(const BackwardPassText& pass, const AttentionSpec& spec, const Footprint& needs,
                              std::string_view tiles, std::string_view config_lines) {
  const FunctorSource functors = functor_source(spec, ScoreNumbers::duals);
  Program program;
  program.threads = needs.threads;
  program.smem_bytes = needs.smem_bytes;
  program.name = fmt::format("attention_{}_{}_{}", pass.folder, problem_name(spec), tiles);

  std::string& source = program.source;
  source = fmt::format("// Attention backward, {}: {}. Generated: change the spec, not this file.\n",
                       pass.gradients, to_string(spec));
  source += fmt::format("#include \"{}/kernel.cuh\"\n\nusing namespace jit;\n\n", pass.folder);
  source += functors.definitions;
  source += fmt::format("struct Config {{\n{}{}}};\n", spec_lines(spec, functors), config_lines);
  source += params_assertion() + gradient_params_assertion() + functors.assertions;
  source += fmt::format(
      "static_assert({}::smem_layout<Config>().total == {}, \"host and device disagree on shared "
      "memory\");\n\n",
      pass.folder, program.smem_bytes);
  source += fmt::format(
      "extern \"C\" __global__ void __launch_bounds__({}, Config::blocks_per_sm)\n"
      "{}(const __grid_constant__ AttentionParams params, const __grid_constant__ GradientParams "
      "gradients) {{\n"
      "  {}::{}<Config>(params, gradients);\n}}\n",
      program.threads, program.name, pass.folder, pass.function);
  return program;
}

}  // namespace jit
