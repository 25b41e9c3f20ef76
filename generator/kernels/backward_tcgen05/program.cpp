#include <utility>

#include <fmt/format.h>
#include <jit/spec_table.h>

#include "generator/kernels/backward_tcgen05/family.h"
#include "generator/kernels/one_pass.h"
#include "generator/program/emit.h"
#include "generator/program/functor_source.h"
#include "templates/backward/tensor_maps.cuh"
#include "templates/backward_tcgen05/smem_layout.cuh"

namespace jit {

using namespace backward_tcgen05;

namespace {

std::string config_name(const AttentionSpec& spec, const BackwardTcgen05& config) {
  return fmt::format("{}_s{}", problem_name(spec), config.stages);
}

// The members of Config, shared by all three programs.
std::string config_text(const AttentionSpec& spec, const BackwardTcgen05& config) {
  return spec_lines(spec, functor_source(spec)) + number_line("tile_q", tile_q, "queries per step") +
         number_line("tile_kv", tile_kv, "keys per block") +
         config_lines(Family<BackwardTcgen05>::fields(), config) +
         "  static constexpr bool pair = false;  // blocks have tiles of keys of their own\n";
}

}  // namespace

namespace backward_tcgen05 {

Program prepare_program(const AttentionSpec& spec, const BackwardTcgen05& config) {
  const std::string name = config_name(spec, config), text = config_text(spec, config);
  return one_pass::prepare_program(spec,
                                   {.family = "backward_tcgen05",
                                    .config_name = name,
                                    .what = "what is known of queries",
                                    .config = text,
                                    .facts = config,
                                    .threads = 256,  // prepare_threads
                                    .blocks_per_sm = 4},
                                   config.deterministic);
}

Program convert_program(const AttentionSpec& spec, const BackwardTcgen05& config) {
  const std::string name = config_name(spec, config), text = config_text(spec, config);
  return one_pass::convert_program(spec, {.family = "backward_tcgen05",
                                          .config_name = name,
                                          .what = "dQ in 16 bits",
                                          .config = text,
                                          .facts = config,
                                          .threads = 256,  // two for each query
                                          .blocks_per_sm = 2});
}

}  // namespace backward_tcgen05

Program Family<BackwardTcgen05>::program(const AttentionSpec& spec, const BackwardTcgen05& config) {
  const FunctorSource functors = functor_source(spec, ScoreNumbers::duals);
  const Footprint needs = footprint(spec, config);
  Program program;
  program.threads = needs.threads;
  program.smem_bytes = needs.smem_bytes;
  program.name = fmt::format("attention_backward_tcgen05_{}", config_name(spec, config));
  const auto [maps, maps_bytes] = is_plain(spec) ? std::pair("TensorMaps", sizeof(TensorMaps))
                                                 : std::pair("SequenceMaps", sizeof(SequenceMaps));
  std::string& source = program.source;
  source =
      fmt::format("// Attention backward: {}. Generated: change the spec, not this file.\n", to_string(spec));
  source += "#include \"backward_tcgen05/kernel.cuh\"\n\nusing namespace jit;\n\n";
  source += functors.definitions;
  source += "struct Config {\n" + config_text(spec, config);
  source += number_line("score_registers", score_registers,
                        "registers per thread of the score warps after setmaxnreg");
  source += number_line("dq_registers", dq_registers, "registers per thread of the warps that read dQ");
  source += number_line("producer_registers", producer_registers, "registers per thread of the other warps");
  source += "};\n" + params_assertion() + gradient_params_assertion() + functors.assertions;
  source += fmt::format(
      "static_assert(sizeof({0}) == {1}, \"host and device disagree on the tensor maps\");\n"
      "static_assert(backward_tcgen05::KernelTraits<Config>::layout.total == {2}, "
      "\"host and device disagree on shared memory\");\n\n"
      "extern \"C\" __global__ void __launch_bounds__(backward_tcgen05::KernelTraits<Config>::threads, 1)\n"
      "{3}(const __grid_constant__ AttentionParams params, const __grid_constant__ GradientParams gradients, "
      "const __grid_constant__ {0} maps) {{\n"
      "  backward_tcgen05::attention_backward<Config>(params, gradients, maps);\n}}\n",
      maps, maps_bytes, program.smem_bytes, program.name);
  return program;
}

}  // namespace jit
