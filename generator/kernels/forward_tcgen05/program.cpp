#include <utility>

#include <fmt/format.h>
#include <jit/spec_table.h>

#include "generator/kernels/forward_tcgen05/family.h"
#include "generator/program/emit.h"
#include "generator/program/functor_source.h"
#include "templates/forward_tcgen05/smem_layout.cuh"
#include "templates/mainloop/tensor_maps.cuh"

namespace jit {

Program Family<ForwardTcgen05>::program(const AttentionSpec& spec, const ForwardTcgen05& config) {
  using namespace forward_tcgen05;
  const FunctorSource functors = functor_source(spec);
  const Footprint needs = footprint(spec, config);
  const Blocks blocks = blocks_of(spec);
  const Registers registers = registers_of(spec);
  Program program;
  program.threads = needs.threads;
  program.smem_bytes = needs.smem_bytes;
  program.cluster = blocks.count;
  program.name = fmt::format("attention_forward_tcgen05_{}_s{}", problem_name(spec), config.stages);
  const auto [maps, maps_bytes] = is_plain(spec) ? std::pair("TensorMaps", sizeof(TensorMaps))
                                                 : std::pair("SequenceMaps", sizeof(SequenceMaps));
  std::string& source = program.source;
  source =
      fmt::format("// Attention forward: {}. Generated: change the spec, not this file.\n", to_string(spec));
  source += "#include \"forward_tcgen05/kernel.cuh\"\n\nusing namespace jit;\n\n";
  source += functors.definitions;
  source += "struct Config {\n" + spec_lines(spec, functors) + config_lines(fields(), config);
  source += number_line("tile_q", tile_q, "queries per block");
  source += number_line("tile_kv", tile_kv, "keys per step");
  if (blocks.count > 1)
    source += number_line("blocks_per_tile", blocks.count, "blocks of a cluster that share it");
  source += number_line("stages_q", 1, "buffers for Q tiles");
  source +=
      "  static constexpr OutputPlace output = OutputPlace::direct;  // O goes from registers to memory\n";
  source +=
      "  static constexpr bool descending = false;  // tiles of keys go from the first one to the last\n";
  source +=
      number_line("softmax_registers", registers.softmax, "registers per softmax thread after setmaxnreg");
  source += number_line("correction_registers", registers.correction,
                        "registers per thread of the correction warpgroup");
  source += number_line("producer_registers", registers.producer, "registers per thread of the other warps");
  source += "};\n" + params_assertion() + functors.assertions;
  source += fmt::format(
      "static_assert(sizeof({0}) == {1}, \"host and device disagree on the tensor maps\");\n"
      "static_assert(forward_tcgen05::KernelTraits<Config>::layout.total == {2}, "
      "\"host and device disagree on shared memory\");\n\n"
      "extern \"C\" __global__ void {4}__launch_bounds__(forward_tcgen05::KernelTraits<Config>::threads, 1)\n"
      "{3}(const __grid_constant__ AttentionParams params, const __grid_constant__ {0} maps) {{\n"
      "  forward_tcgen05::attention_forward<Config>(params, maps);\n}}\n",
      maps, maps_bytes, program.smem_bytes, program.name,
      blocks.count > 1 ? "__cluster_dims__(2, 1, 1) " : "");
  return program;
}

}  // namespace jit
