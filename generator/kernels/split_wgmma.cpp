#include "generator/kernels/split_wgmma.h"

#include <algorithm>

#include <fmt/format.h>

#include "generator/kernels/converted_scales.h"
#include "generator/program/emit.h"
#include "generator/program/functor_source.h"
#include "generator/program/wgmma_source.h"

namespace jit {

int launched_registers(int threads, int blocks_per_sm) {
  return std::min(max_registers_per_thread, registers_per_sm / (threads * blocks_per_sm) / 8 * 8);
}

RegisterShares shared_registers(int consumers, int blocks_per_sm, int producer, int converter) {
  constexpr int most = 240;
  const int warpgroups = consumers + (converter > 0 ? 2 : 1);
  const int all = launched_registers(warpgroup_threads(warpgroups), blocks_per_sm) * warpgroups;
  return {.producer = producer,
          .consumer = std::min(most, (all - producer - converter) / consumers / 8 * 8),
          .converter = converter};
}

Program split_wgmma_program(const AttentionSpec& spec, const SplitWgmmaProgram& parts) {
  const FunctorSource functors = functor_source(spec);
  Program program;
  program.headers = {wgmma_products_file(parts.products)};
  program.threads = parts.needs.threads;
  program.smem_bytes = parts.needs.smem_bytes;
  program.cluster = parts.cluster;
  program.name = fmt::format("attention_{}_{}_{}", parts.family, problem_name(spec), parts.tiles);

  std::string& source = program.source;
  source =
      fmt::format("// Attention forward: {}. Generated: change the spec, not this file.\n", to_string(spec));
  source +=
      fmt::format("#include \"{}/kernel.cuh\"\n#include \"wgmma_products.cuh\"\n\nusing namespace jit;\n\n",
                  parts.family);
  source += functors.definitions;
  source += "struct Config : WgmmaProducts {\n" + spec_lines(converted_spec(spec), functors) + parts.config;
  source += number_line("producer_registers", parts.registers.producer,
                        "registers per producer thread after setmaxnreg; 0: as launched");
  source += number_line("consumer_registers", parts.registers.consumer,
                        "registers per consumer thread after setmaxnreg");
  if (parts.registers.converter != 0)
    source += number_line("converter_registers", parts.registers.converter,
                          "registers per converter thread after setmaxnreg");
  if (parts.registers.score != 0)
    source +=
        number_line("score_registers", parts.registers.score, "registers per thread of the score warpgroup");
  source += "};\n";
  source += params_assertion() + functors.assertions;
  source += fmt::format(
      "static_assert(sizeof(KernelMemory) == {1}, \"host and device disagree on the kernel's "
      "memory\");\n"
      "static_assert({0}::KernelTraits<Config>::layout.total == {2}, "
      "\"host and device disagree on shared memory\");\n\n",
      parts.family, parts.memory_bytes, program.smem_bytes);
  source += fmt::format(
      "extern \"C\" __global__ void {3}__launch_bounds__({0}::KernelTraits<Config>::threads, {1})\n"
      "{2}(const __grid_constant__ AttentionParams params,\n"
      "    const __grid_constant__ KernelMemory memory) {{\n"
      "  {0}::attention_forward<Config>(params, memory);\n}}\n",
      parts.family, parts.needs.blocks_per_sm, program.name,
      parts.cluster > 1 ? fmt::format("__cluster_dims__({}, 1, 1) ", parts.cluster) : "");
  return program;
}

}  // namespace jit
