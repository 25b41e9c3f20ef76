#include "generator/kernels/backward_sinks/steps.h"

#include <fmt/format.h>

#include "runtime/launch.h"
#include "templates/backward_sinks/params.cuh"

namespace jit::backward_sinks {

Program program() {
  Program program;
  program.threads = 256;
  program.name = "attention_backward_sinks";
  program.facts = {{"spec", "gradients of sinks"}};
  program.source = fmt::format(
      "// Attention backward, gradients of sinks. Generated.\n#include \"backward_sinks/kernel.cuh\"\n\n"
      "using namespace jit;\n\n"
      "static_assert(sizeof(SinkGradientParams) == {}, "
      "\"host and device disagree on the kernel's parameters\");\n\n"
      "extern \"C\" __global__ void __launch_bounds__({})\n"
      "{}(const __grid_constant__ SinkGradientParams params) {{\n"
      "  backward_sinks::sum_sink_gradients<{}>(params);\n}}\n",
      sizeof(SinkGradientParams), program.threads, program.name, program.threads);
  return program;
}

void launch(const KernelLaunch& launch, const Statistics& statistics) {
  const AttentionParams& params = launch.params;
  if (params.heads_q == 0) return;
  SinkGradientParams sinks{.sinks = params.sequences.sinks,
                           .d_sinks = launch.gradients->d_sinks,
                           .lse_log2 = launch.gradients->lse_log2,
                           .delta = launch.gradients->delta,
                           .sign = statistics.sign,
                           .batch = params.batch,
                           .heads = params.heads_q,
                           .rows = statistics.rows};
  void* arguments[] = {&sinks};
  jit::launch(launch.kernel.kernel.handle(),
              {.grid = {static_cast<unsigned>(params.heads_q), 1, 1}, .block = {launch.kernel.threads, 1, 1}},
              arguments, launch.stream);
}

}  // namespace jit::backward_sinks
