#include <fmt/format.h>

#include "generator/kernels/forward_split_kv/family.h"
#include "generator/program/emit.h"
#include "generator/program/functor_source.h"
#include "templates/split_keys/split_params.cuh"

namespace jit {

Program Family<ForwardSplitKv>::program(const AttentionSpec& spec, const ForwardSplitKv& config) {
  const FunctorSource functors = functor_source(spec);
  Program program;
  const Footprint needs = footprint(spec, config);
  program.threads = needs.threads;
  program.smem_bytes = needs.smem_bytes;
  program.name = fmt::format("attention_forward_split_kv_{}_r{}k{}kv{}s{}", problem_name(spec),
                             config.row_warps, config.key_warps, config.tile_kv, config.stages);

  std::string& source = program.source;
  source =
      fmt::format("// Attention forward: {}. Generated: change the spec, not this file.\n", to_string(spec));
  source += "#include \"forward_split_kv/kernel.cuh\"\n\nusing namespace jit;\n\n";
  source += functors.definitions;
  source += "struct Config {\n" + spec_lines(spec, functors) + config_lines(fields(), config) + "};\n";
  const ParameterText descale = descale_text(spec);
  source += params_assertion() + descale.assertion + functors.assertions;
  source += fmt::format(
      "static_assert(forward_split_kv::smem_layout<Config>().total == {}, "
      "\"host and device disagree on shared memory\");\n\n",
      program.smem_bytes);
  source += fmt::format(
      "extern \"C\" __global__ void __launch_bounds__({}, Config::blocks_per_sm)\n"
      "{}(const __grid_constant__ AttentionParams params,\n"
      "    const __grid_constant__ SplitParams split{}) {{\n"
      "  forward_split_kv::attention_forward<Config>(params, split{});\n}}\n",
      program.threads, program.name, descale.parameter, descale.argument);
  return program;
}

}  // namespace jit
