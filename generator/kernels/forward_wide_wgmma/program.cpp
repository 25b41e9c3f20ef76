#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <jit/dtype.h>
#include <jit/spec_table.h>

#include "generator/kernels/forward_wide_wgmma/family.h"
#include "generator/program/emit.h"
#include "generator/program/functor_source.h"
#include "generator/program/wgmma_source.h"
#include "templates/base/element.cuh"
#include "templates/forward_wide_wgmma/smem_layout.cuh"
#include "templates/mainloop/tensor_maps.cuh"

namespace jit {
namespace {

using namespace forward_wide_wgmma;

// The kernel's products of panels, in the base class of its Config.
SourceFile wgmma_products(const AttentionSpec& spec) {
  const int mma_k = facts(spec.dtype).mma_k, steps = padded_head_dim(spec.head_dim) / mma_k;
  const int panel_steps = panel_columns(spec.head_dim) / mma_k, panels = panel_count(spec.head_dim);
  const WgmmaProduct of_panel{.dtype = spec.dtype, .n = tile_kv, .steps = panel_steps, .accumulate = true};
  WgmmaProduct first = of_panel, last = of_panel;
  first.accumulate = false;
  first.steps = std::min(steps, panel_steps);
  last.steps = steps - (panels - 1) * panel_steps;
  const auto in_registers = [](WgmmaProduct product) {
    product.a_in_registers = true;
    return product;
  };
  return wgmma_products_file(
      wgmma_function("wgmma_qk_first", "D = A B: the first panel of Q, and of tile_kv rows of K.", first) +
      wgmma_function("wgmma_qk", "D += A B: a further panel of both.", of_panel) +
      wgmma_function("wgmma_qk_last", "D += A B: the last one, which may be narrower.", last) +
      wgmma_function("wgmma_qk_registers_first", "D = A B: the first panel of Q, in registers.",
                     in_registers(first)) +
      wgmma_function("wgmma_qk_registers", "D += A B: a further one.", in_registers(of_panel)) +
      wgmma_function("wgmma_pv", "D += A B: P, and tile_kv rows of some columns of V.",
                     {.dtype = spec.dtype,
                      .n = part_columns(spec.value_head_dim()),
                      .steps = tile_kv / mma_k,
                      .accumulate = true,
                      .b_along_rows = true}));
}

}  // namespace

Program Family<ForwardWideWgmma>::program(const AttentionSpec& spec, const ForwardWideWgmma& config) {
  const FunctorSource functors = functor_source(spec);
  const forward_wide_wgmma::RegisterShares shares = register_shares(spec);
  const Footprint needs = footprint(spec, config);
  Program program;
  program.headers = {wgmma_products(spec)};
  program.threads = needs.threads;
  program.smem_bytes = needs.smem_bytes;
  program.name = fmt::format("attention_forward_wide_wgmma_{}_k{}", problem_name(spec), config.stages_k);
  const bool plain = is_plain(spec);
  const auto [maps, maps_bytes] =
      plain ? std::pair("TensorMaps", sizeof(TensorMaps)) : std::pair("SequenceMaps", sizeof(SequenceMaps));
  std::string& source = program.source;
  source =
      fmt::format("// Attention forward: {}. Generated: change the spec, not this file.\n", to_string(spec));
  source +=
      "#include \"forward_wide_wgmma/kernel.cuh\"\n#include \"wgmma_products.cuh\"\n\nusing namespace "
      "jit;\n\n";
  source += functors.definitions;
  source += "struct Config : WgmmaProducts {\n" + spec_lines(spec, functors) + config_lines(fields(), config);
  source += number_line("tile_q", rows_per_warpgroup, "queries per block");
  source += number_line("tile_kv", tile_kv, "keys per step");
  source += number_line("stages_q", 1, "buffers for Q tiles");
  source +=
      "  static constexpr OutputPlace output = OutputPlace::direct;  // O goes from registers to memory\n";
  source +=
      "  static constexpr bool descending = false;  // tiles of keys go from the first one to the last\n";
  source += number_line("register_panels", shares.q_panels, "of Q, which stay in registers");
  source +=
      number_line("producer_registers", shares.producer, "registers per producer thread after setmaxnreg");
  source += number_line("score_registers", shares.score, "registers per thread of the score warpgroup");
  source += number_line("output_registers", shares.output, "registers per thread of the output warpgroups");
  source += "};\n" + params_assertion() + functors.assertions;
  source += fmt::format(
      "static_assert(sizeof({0}) == {1}, \"host and device disagree on the tensor maps\");\n"
      "static_assert(forward_wide_wgmma::KernelTraits<Config>::layout.total == {2}, "
      "\"host and device disagree on shared memory\");\n\n"
      "extern \"C\" __global__ void "
      "__launch_bounds__(forward_wide_wgmma::KernelTraits<Config>::threads, 1)\n"
      "{3}(const __grid_constant__ AttentionParams params, const __grid_constant__ {0} maps) {{\n"
      "  forward_wide_wgmma::attention_forward<Config>(params, maps);\n}}\n",
      maps, maps_bytes, program.smem_bytes, program.name);
  return program;
}

}  // namespace jit
