#include <fmt/format.h>

#include "generator/kernels/backward_dq_mma_sync/family.h"
#include "generator/program/emit.h"
#include "generator/program/functor_source.h"

namespace jit {

Program Family<BackwardDqMmaSync>::program(const AttentionSpec& spec, const BackwardDqMmaSync& config) {
  const FunctorSource functors = functor_source(spec, ScoreNumbers::duals);
  Program program;
  const Footprint needs = footprint(spec, config);
  program.threads = needs.threads;
  program.smem_bytes = needs.smem_bytes;
  program.name = fmt::format("attention_backward_dq_mma_sync_{}_q{}kv{}w{}s{}", problem_name(spec),
                             config.tile_q, config.tile_kv, config.warps, config.stages);

  std::string& source = program.source;
  source = fmt::format("// Attention backward, dQ: {}. Generated: change the spec, not this file.\n",
                       to_string(spec));
  source += "#include \"backward_dq_mma_sync/kernel.cuh\"\n\nusing namespace jit;\n\n";
  source += functors.definitions;
  source += "struct Config {\n" + spec_lines(spec, functors) + config_lines(fields(), config) + "};\n";
  const ParameterText dropout = dropout_text(spec);
  source += params_assertion() + gradient_params_assertion() + dropout.assertion + functors.assertions;
  source += fmt::format(
      "static_assert(backward_dq_mma_sync::smem_layout<Config>().total == {}, "
      "\"host and device disagree on shared memory\");\n\n",
      program.smem_bytes);
  source += fmt::format(
      "extern \"C\" __global__ void __launch_bounds__(Config::warps * warp_size, Config::blocks_per_sm)\n"
      "{}(const __grid_constant__ AttentionParams params, const __grid_constant__ GradientParams "
      "gradients{}) "
      "{{\n  "
      "backward_dq_mma_sync::attention_backward_dq<Config>(params, gradients{});\n}}\n",
      program.name, dropout.parameter, dropout.argument);
  return program;
}

}  // namespace jit
