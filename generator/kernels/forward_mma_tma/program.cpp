#include <utility>

#include <fmt/format.h>
#include <jit/spec_table.h>

#include "generator/kernels/forward_mma_tma/family.h"
#include "generator/program/emit.h"
#include "generator/program/functor_source.h"
#include "templates/forward_mma_tma/smem_layout.cuh"
#include "templates/mainloop/tensor_maps.cuh"

namespace jit {

Program Family<ForwardMmaTma>::program(const AttentionSpec& spec, const ForwardMmaTma& config) {
  const FunctorSource functors = functor_source(spec);
  const Footprint needs = footprint(spec, config);
  Program program;
  program.threads = needs.threads;
  program.smem_bytes = needs.smem_bytes;
  program.name = fmt::format("attention_forward_mma_tma_{}_q{}kv{}s{}", problem_name(spec), config.tile_q,
                             config.tile_kv, config.stages);
  const bool plain = is_plain(spec);
  const auto [maps, maps_bytes] =
      plain ? std::pair("TensorMaps", sizeof(TensorMaps)) : std::pair("SequenceMaps", sizeof(SequenceMaps));
  std::string& source = program.source;
  source =
      fmt::format("// Attention forward: {}. Generated: change the spec, not this file.\n", to_string(spec));
  source += "#include \"forward_mma_tma/kernel.cuh\"\n\nusing namespace jit;\n\n";
  source += functors.definitions;
  source += "struct Config {\n" + spec_lines(spec, functors) + config_lines(fields(), config);
  source += number_line("stages_q", forward_mma_tma::stages_q, "buffers for Q tiles");
  source +=
      "  static constexpr OutputPlace output = OutputPlace::direct;  // O goes from registers to memory\n"
      "  static constexpr bool descending = false;  // tiles of keys go from the first one to the last\n";
  source += "};\n" + params_assertion() + functors.assertions;
  source += fmt::format(
      "static_assert(sizeof({0}) == {1}, \"host and device disagree on the tensor maps\");\n"
      "static_assert(forward_mma_tma::KernelTraits<Config>::layout.total == {2}, "
      "\"host and device disagree on shared memory\");\n\n"
      "extern \"C\" __global__ void __launch_bounds__(forward_mma_tma::KernelTraits<Config>::threads, 1)\n"
      "{3}(const __grid_constant__ AttentionParams params, const __grid_constant__ {0} maps) {{\n"
      "  forward_mma_tma::attention_forward<Config>(params, maps);\n}}\n",
      maps, maps_bytes, program.smem_bytes, program.name);
  return program;
}

}  // namespace jit
