#include <vector>

#include <fmt/format.h>
#include <jit/dtype.h>

#include "generator/kernels/backward_tensors/steps.h"
#include "generator/program/emit.h"
#include "generator/program/functor_source.h"
#include "templates/backward_tensors/smem_layout.cuh"
#include "templates/backward_tensors/sums.cuh"

namespace jit::backward_tensors {
namespace {

std::string sums_assertion() {
  return fmt::format(
      "static_assert(sizeof(TensorSums) == {}, \"host and device disagree on the kernel's parameters\");\n",
      sizeof(TensorSums));
}

constexpr std::string_view parameters =
    "const __grid_constant__ GradientParams gradients, const __grid_constant__ TensorSums sums";

}  // namespace

Program sum_program(const AttentionSpec& spec, unsigned slots) {
  const FunctorSource functors = functor_source(spec, ScoreNumbers::duals, slots);
  Program program;
  program.threads = threads(spec.head_dim, spec.value_head_dim());
  program.smem_bytes = smem_layout(spec.head_dim, spec.value_head_dim()).total;
  program.name = fmt::format("attention_backward_tensors_{}_t{}", problem_name(spec), slots);
  program.facts = {{"spec", to_string(spec)}};
  std::string& source = program.source;
  source = fmt::format(
      "// Attention backward, gradients of tensors: {}. Generated: change the spec, not this file.\n",
      to_string(spec));
  source += "#include \"backward_tensors/kernel.cuh\"\n\nusing namespace jit;\n\n";
  source += functors.definitions;
  source += "struct Config {\n" + spec_lines(spec, functors);
  source += number_line("gradient_slots", static_cast<int>(slots), "a bit for each tensor");
  source +=
      "};\n" + params_assertion() + gradient_params_assertion() + sums_assertion() + functors.assertions;
  source += fmt::format(
      "static_assert(backward_tensors::smem_layout(Config::head_dim, Config::head_dim_v).total == {}, "
      "\"host and device disagree on shared memory\");\n\n"
      "extern \"C\" __global__ void __launch_bounds__({})\n"
      "{}(const __grid_constant__ AttentionParams params, {}) {{\n"
      "  backward_tensors::collect_tensor_gradients<Config>(params, gradients, sums);\n}}\n",
      program.smem_bytes, program.threads, program.name, parameters);
  return program;
}

Program convert_program(const AttentionSpec& spec, unsigned slots) {
  const std::vector<FunctorTensorSpec> tensors = functor_tensors(spec);
  Program program;
  program.threads = convert_threads;
  program.name = "attention_backward_tensors_convert";
  std::string lines;
  for (std::size_t slot = 0; slot < tensors.size(); ++slot) {
    if ((slots >> slot & 1) == 0) continue;
    program.name += fmt::format("_{}_{}", slot, to_string(tensors[slot].dtype));
    lines += fmt::format("  backward_tensors::convert_sums<{}>(gradients, sums, {});\n",
                         facts(tensors[slot].dtype).device_type, slot);
  }
  program.facts = {{"spec", "rounding of gradients of tensors"}};
  program.source = fmt::format(
      "// Attention backward, gradients of tensors in their types. Generated.\n"
      "#include \"backward_tensors/convert.cuh\"\n\nusing namespace jit;\n\n{}{}"
      "\nextern \"C\" __global__ void __launch_bounds__({})\n{}({}) {{\n{}}}\n",
      gradient_params_assertion(), sums_assertion(), convert_threads, program.name, parameters, lines);
  return program;
}

}  // namespace jit::backward_tensors
