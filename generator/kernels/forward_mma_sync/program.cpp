#include <fmt/format.h>

#include "generator/kernels/forward_mma_sync/family.h"
#include "generator/program/emit.h"
#include "generator/program/functor_source.h"

namespace jit {

Program Family<ForwardMmaSync>::program(const AttentionSpec& spec, const ForwardMmaSync& config) {
  const FunctorSource functors = functor_source(spec);
  Program program;
  const Footprint needs = footprint(spec, config);
  program.threads = needs.threads;
  program.smem_bytes = needs.smem_bytes;
  program.name = fmt::format("attention_forward_mma_sync_{}_q{}kv{}w{}k{}v{}", problem_name(spec),
                             config.tile_q, config.tile_kv, config.warps, config.stages_k, config.stages_v);

  std::string& source = program.source;
  source =
      fmt::format("// Attention forward: {}. Generated: change the spec, not this file.\n", to_string(spec));
  source += "#include \"forward_mma_sync/kernel.cuh\"\n\nusing namespace jit;\n\n";
  source += functors.definitions;
  source += "struct Config {\n" + spec_lines(spec, functors) + config_lines(fields(), config) + "};\n";
  source += params_assertion() + functors.assertions;
  source += fmt::format(
      "static_assert(forward_mma_sync::smem_layout<Config>().total == {}, "
      "\"host and device disagree on shared memory\");\n\n",
      program.smem_bytes);
  const bool has_spans = spec.split_keys != 0;
  source += fmt::format(
      "extern \"C\" __global__ void __launch_bounds__({}, Config::blocks_per_sm)\n"
      "{}(const __grid_constant__ AttentionParams params{}) {{\n  "
      "forward_mma_sync::attention_forward<Config>(params{});\n}}\n",
      program.threads, program.name, has_spans ? ", const __grid_constant__ SpanMemory spans" : "",
      has_spans ? ", spans" : "");
  return program;
}

}  // namespace jit
