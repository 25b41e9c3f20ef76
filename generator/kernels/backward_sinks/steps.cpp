#include "generator/kernels/backward_sinks/steps.h"

#include <fmt/format.h>
#include <jit/spec_table.h>

#include "generator/program/emit.h"
#include "generator/program/functor_source.h"
#include "runtime/launch.h"

namespace jit::backward_sinks {

Program program(const AttentionSpec& spec) {
  const AttentionSpec own{
      .sequences_q = spec.sequences_q, .sequences_kv = spec.sequences_kv, .mean_score = spec.mean_score};
  Program program;
  program.threads = 256;
  program.name = "attention_backward_sinks";
  if (!is_dense(own))
    program.name += fmt::format("_{}_{}", to_string(own.sequences_q), to_string(own.sequences_kv));
  if (own.mean_score) program.name += "_mean_score";
  program.facts = {{"spec", "gradients of sinks"}};
  program.source = fmt::format(
      "// Attention backward, gradients of sinks. Generated.\n#include \"backward_sinks/kernel.cuh\"\n"
      "#include \"problem/masks.cuh\"\n#include \"problem/scores.cuh\"\n\n"
      "using namespace jit;\n\nstruct Config {{\n{}}};\n{}{}"
      "static_assert(sizeof(QueryStatisticsLayout) == {}, "
      "\"host and device disagree on the kernel's parameters\");\n\n"
      "extern \"C\" __global__ void __launch_bounds__({})\n"
      "{}(const __grid_constant__ AttentionParams params, const __grid_constant__ GradientParams gradients,\n"
      "    const __grid_constant__ QueryStatisticsLayout layout) {{\n"
      "  backward_sinks::sum_sink_gradients<Config, {}>(params, gradients, layout);\n}}\n",
      spec_lines(own, functor_source(own)), params_assertion(), gradient_params_assertion(),
      sizeof(QueryStatisticsLayout), program.threads, program.name, program.threads);
  return program;
}

void launch(const KernelLaunch& launch, QueryStatisticsLayout layout) {
  AttentionParams& params = launch.params;
  if (params.heads_q == 0) return;
  if (launch.spec.score == score::none()) layout.score_unit = params.softmax_scale;
  if (launch.spec.dropout) layout.factor *= params.dropout.scale;
  void* arguments[] = {&params, launch.gradients, &layout};
  jit::launch(launch.kernel.kernel.handle(),
              {.grid = {static_cast<unsigned>(params.heads_q), 1, 1}, .block = {launch.kernel.threads, 1, 1}},
              arguments, launch.stream);
}

}  // namespace jit::backward_sinks
