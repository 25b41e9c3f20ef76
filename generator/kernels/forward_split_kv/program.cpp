#include <fmt/format.h>

#include "generator/kernels/forward_split_kv/family.h"
#include "generator/program/emit.h"
#include "generator/program/functor_source.h"
#include "templates/split_keys/split_params.cuh"

namespace jit {

Program Family<ForwardSplitKv>::program(const AttentionSpec& spec, const ForwardSplitKv& config) {
  const FunctorSource functors = functor_source(spec);
  const bool uses_tma = config.copies == Copies::tma;
  Program program;
  const Footprint needs = footprint(spec, config);
  program.threads = needs.threads;
  program.smem_bytes = needs.smem_bytes;
  program.name =
      fmt::format("attention_forward_split_kv_{}_r{}{}k{}kv{}s{}{}", problem_name(spec), config.row_warps,
                  config.warp_rows == rows_per_warp ? "" : fmt::format("x{}", config.warp_rows),
                  config.key_warps, config.tile_kv, config.stages, uses_tma ? "_tma" : "");

  std::string& source = program.source;
  source =
      fmt::format("// Attention forward: {}. Generated: change the spec, not this file.\n", to_string(spec));
  source += "#include \"forward_split_kv/kernel.cuh\"\n\nusing namespace jit;\n\n";
  source += functors.definitions;
  source += "struct Config {\n" + spec_lines(spec, functors) + config_lines(fields(), config) + "};\n";
  source += params_assertion() + functors.assertions;
  if (uses_tma) {
    source += fmt::format(
        "static_assert(sizeof(KernelMemory) == {}, \"host and device disagree on the "
        "kernel's memory\");\n",
        sizeof(KernelMemory));
  }
  source += fmt::format(
      "static_assert(forward_split_kv::KernelTraits<Config>::layout.total == {}, "
      "\"host and device disagree on shared memory\");\n\n",
      program.smem_bytes);
  source += fmt::format(
      "extern \"C\" __global__ void __launch_bounds__({}, Config::blocks_per_sm)\n"
      "{}(const __grid_constant__ AttentionParams params,\n"
      "    const __grid_constant__ {} split) {{\n"
      "  forward_split_kv::attention_forward<Config>(params, split);\n}}\n",
      program.threads, program.name, uses_tma ? "KernelMemory" : "SplitParams");
  return program;
}

}  // namespace jit
