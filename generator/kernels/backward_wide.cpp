#include "generator/kernels/backward_wide.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <jit/dtype.h>
#include <jit/spec_table.h>

#include "generator/functors/functor_node.h"
#include "generator/kernels/tma_rules.h"
#include "generator/launch/kernel_launch.h"
#include "generator/launch/tensor_maps.h"
#include "generator/program/functor_source.h"
#include "generator/program/wgmma_source.h"
#include "templates/backward_wide/smem_layout.cuh"
#include "templates/base/element.cuh"

namespace jit::backward_wide {
namespace {

constexpr int warpgroup_threads = 128;
constexpr int warpgroups = 2 + output_warpgroups;
// Largest head dims whose sums fit into one block's registers: there, backward_wgmma is faster.
constexpr int narrow_head_dim = 256;
// Addresses and pipeline states, calibrated with ptxas.
constexpr int output_other_registers = 28;

// Registers per thread by setmaxnreg, 512 in total: the kernel is launched with 128 for each of 4 warpgroups.
constexpr int producer_registers = 56, score_registers = 136, output_registers = 160;
static_assert(producer_registers + score_registers + output_warpgroups * output_registers == 4 * 128);

// Panels of a block's own tile that stay in registers, which saves shared memory and its bandwidth; none with
// scores or dropout, which need registers themselves.
struct RegisterPanels {
  int qk = 0;
  int dov = 0;
};
RegisterPanels register_panels(const AttentionSpec& spec, bool of_queries) {
  if (functor_count(spec.score) > 0 || spec.dropout || !spec.mask.tensors().empty()) return {};
  const int most = of_queries ? 2 : 4;
  const int qk = std::min(most, panel_count(spec.head_dim) - 1);
  const int left = of_queries ? most - qk : most;  // blocks of keys have one operand each
  return {.qk = qk, .dov = std::min(left, panel_count(spec.value_head_dim()) - 1)};
}

int widest(const AttentionSpec& spec, bool of_queries) {
  return of_queries ? spec.head_dim : std::max(spec.head_dim, spec.value_head_dim());
}

// Products of the panels of a score operand: first, further, and last one, which may be narrower.
std::string score_products(std::string_view name, DType dtype, int head_dim) {
  const int mma_k = facts(dtype).mma_k, steps = padded_head_dim(head_dim) / mma_k;
  const int panel_steps = panel_columns(head_dim) / mma_k;
  WgmmaProduct product{.dtype = dtype, .n = tile_rows, .steps = std::min(steps, panel_steps)};
  std::string text = wgmma_function(fmt::format("{}_first", name), "D = A B: the first panel.", product);
  product.accumulate = true;
  product.steps = panel_steps;
  text += wgmma_function(name, "D += A B: a further panel.", product);
  product.steps = panel_steps;
  product.a_in_registers = true;
  text += wgmma_function(fmt::format("{}_rs", name), "D += A B: a panel in registers.", product);
  product.accumulate = false;
  text += wgmma_function(fmt::format("{}_rs_first", name), "D = A B: the first one.", product);
  product = {.dtype = dtype,
             .n = tile_rows,
             .steps = steps - (panel_count(head_dim) - 1) * panel_steps,
             .accumulate = true};
  return text + wgmma_function(fmt::format("{}_last", name), "D += A B: the last one.", product);
}

std::string sum_product(std::string_view name, DType dtype, int head_dim) {
  return wgmma_function(name, "D += A B: weights, and some columns of a tile.",
                        {.dtype = dtype,
                         .n = part_columns(head_dim),
                         .steps = tile_rows / facts(dtype).mma_k,
                         .accumulate = true,
                         .b_along_rows = true});
}

SourceFile wgmma_products(const AttentionSpec& spec, bool of_queries) {
  std::string text;
  text += score_products("wgmma_qk", spec.dtype, spec.head_dim);
  text += score_products("wgmma_dov", spec.dtype, spec.value_head_dim());
  text += sum_product("wgmma_sum", spec.dtype, spec.head_dim);
  if (!of_queries) text += sum_product("wgmma_sum_v", spec.dtype, spec.value_head_dim());
  return wgmma_products_file(text);
}

}  // namespace

std::string rejection(const Case& problem, std::string_view name) {
  const AttentionSpec& spec = problem.spec;
  if (std::string reason = wide_output_rejection(spec, name); !reason.empty()) return reason;
  if (std::string reason = gradient_rejection(spec, name); !reason.empty()) return reason;
  if (std::string reason = tma_rejection(problem, name); !reason.empty()) return reason;
  if (std::max(spec.head_dim, spec.value_head_dim()) > narrow_head_dim) return "";
  return fmt::format("{} is for head dims above {}; head_dim is {} and head_dim_v {}", name, narrow_head_dim,
                     spec.head_dim, spec.value_head_dim());
}

Footprint footprint(const AttentionSpec& spec, const Stages& stages, bool of_queries) {
  return {.threads = warpgroups * warpgroup_threads,
          .smem_bytes = smem_layout({.head_dim = spec.head_dim,
                                     .head_dim_v = spec.value_head_dim(),
                                     .register_panels = register_panels(spec, of_queries).qk,
                                     .register_panels_v = register_panels(spec, of_queries).dov,
                                     .panels = stages.panels,
                                     .parts = stages.parts,
                                     .of_queries = of_queries})
                            .total,
          .registers = output_columns(widest(spec, of_queries)) / 2 + output_other_registers,
          .register_cap = output_registers,
          .blocks_per_sm = 1,
          .register_slack = 0,
          .register_doubt = 4};
}

Program program(const BackwardPassText& pass, const AttentionSpec& spec, const Stages& stages,
                bool of_queries, std::string_view config_lines) {
  const FunctorSource functors = functor_source(spec, ScoreNumbers::duals);
  const Footprint needs = footprint(spec, stages, of_queries);
  Program program;
  program.headers = {wgmma_products(spec, of_queries)};
  program.threads = needs.threads;
  program.smem_bytes = needs.smem_bytes;
  program.cluster = of_queries ? 1 : 2;
  program.name =
      fmt::format("attention_{}_{}_p{}s{}", pass.folder, problem_name(spec), stages.panels, stages.parts);
  const bool plain = is_plain(spec);
  const auto [maps, maps_bytes] =
      plain ? std::pair("TensorMaps", sizeof(TensorMaps)) : std::pair("SequenceMaps", sizeof(SequenceMaps));

  std::string& source = program.source;
  source = fmt::format("// Attention backward, {}: {}. Generated: change the spec, not this file.\n",
                       pass.gradients, to_string(spec));
  source += fmt::format(
      "#include \"{}/kernel.cuh\"\n#include \"wgmma_products.cuh\"\n\nusing namespace jit;\n\n", pass.folder);
  source += functors.definitions;
  source += fmt::format("struct Config : WgmmaProducts {{\n{}{}", spec_lines(spec, functors), config_lines);
  source += number_line("tile_q", tile_rows, "queries of a tile");
  source += number_line("tile_kv", tile_rows, "keys of a tile");
  const RegisterPanels in_registers = register_panels(spec, of_queries);
  source += number_line("register_panels", in_registers.qk, "panels of Q or K that stay in registers");
  source += number_line("register_panels_v", in_registers.dov, "the same of dO or V");
  source +=
      number_line("producer_registers", producer_registers, "registers per producer thread after setmaxnreg");
  source += number_line("score_registers", score_registers, "registers per thread of the score warpgroup");
  source +=
      number_line("output_registers", output_registers, "registers per thread of the output warpgroups");
  source += "};\n" + params_assertion() + gradient_params_assertion() + functors.assertions;
  source += fmt::format(
      "static_assert(sizeof({0}) == {1}, \"host and device disagree on the tensor maps\");\n"
      "static_assert({2}::KernelTraits<Config>::layout.total == {3}, "
      "\"host and device disagree on shared memory\");\n\n"
      "extern \"C\" __global__ void {4}__launch_bounds__({2}::KernelTraits<Config>::threads, 1)\n"
      "{5}(const __grid_constant__ AttentionParams params, const __grid_constant__ GradientParams gradients, "
      "const __grid_constant__ {0} maps) {{\n"
      "  {2}::{6}<Config>(params, gradients, maps);\n}}\n",
      maps, maps_bytes, pass.folder, program.smem_bytes, of_queries ? "" : "__cluster_dims__(2, 1, 1) ",
      program.name, pass.function);
  return program;
}

double cycles(const Case& problem, const Stages& stages, double blocks, double steps, double columns) {
  // Clocks of an SM: tensor cores take half a clock per 64 rows and column of a product, and 16 of its sum.
  constexpr double tensor_share = 0.6, block_clocks = 6000, launch_clocks = 6000, scarce = 0.02;
  const double step = columns * tile_rows / 16 / 2 / tensor_share;
  const double lacking = std::max(0, 10 - stages.panels) + std::max(0, 4 - stages.parts);
  // The models of the mma.sync passes underestimate wide heads, which take four times as long on an H200.
  constexpr double beside_other_families = 0.2;
  return beside_other_families * (launch_clocks + std::max(1.0, blocks / problem.limits.sm_count) *
                                                      (steps * step * (1 + scarce * lacking) + block_clocks));
}

SequenceMaps maps(const KernelLaunch& launch) {
  const MapBoxes boxes{.rows_q = tile_rows, .rows_kv = tile_rows, .rows_dkv = tile_rows};
  const MappedGradients whole = map_gradients(launch.spec, boxes, launch.params, *launch.gradients);
  SequenceMaps maps = {};
  maps.q = whole.q;
  maps.k = whole.k;
  maps.v = whole.v;
  maps.d_o = whole.d_o;
  if (!is_plain(launch.spec)) {
    const MappedGradients part = map_bounded_gradients(launch.spec, boxes, launch.params, *launch.gradients);
    maps.bounded_q = part.q;
    maps.bounded_k = part.k;
    maps.bounded_v = part.v;
    maps.bounded_do = part.d_o;
  }
  return maps;
}

}  // namespace jit::backward_wide
