#include <fmt/format.h>

#include "generator/kernels/forward_split_cluster/family.h"
#include "generator/program/emit.h"
#include "generator/program/functor_source.h"

namespace jit {

Program Family<ForwardSplitCluster>::program(const AttentionSpec& spec, const ForwardSplitCluster& config) {
  const FunctorSource functors = functor_source(spec);
  const Footprint needs = footprint(spec, config);
  Program program;
  program.threads = needs.threads;
  program.smem_bytes = needs.smem_bytes;
  program.cluster = config.cluster;
  program.name = fmt::format("attention_forward_split_cluster_{}_c{}k{}kv{}s{}", problem_name(spec),
                             config.cluster, config.block_warps, config.tile_kv, config.stages);

  std::string& source = program.source;
  source =
      fmt::format("// Attention forward: {}. Generated: change the spec, not this file.\n", to_string(spec));
  source += "#include \"forward_split_cluster/kernel.cuh\"\n\nusing namespace jit;\n\n";
  source += functors.definitions;
  source += "struct Config {\n" + spec_lines(spec, functors) + config_lines(fields(), config) + "};\n";
  source += params_assertion() + functors.assertions;
  source += fmt::format(
      "static_assert(forward_split_cluster::KernelTraits<Config>::layout.total == {}, "
      "\"host and device disagree on shared memory\");\n\n",
      program.smem_bytes);
  source += fmt::format(
      "extern \"C\" __global__ void __cluster_dims__(Config::cluster, 1, 1)\n"
      "__launch_bounds__({}, Config::blocks_per_sm)\n"
      "{}(const __grid_constant__ AttentionParams params) {{\n"
      "  forward_split_cluster::attention_forward<Config>(params);\n}}\n",
      program.threads, program.name);
  return program;
}

}  // namespace jit
