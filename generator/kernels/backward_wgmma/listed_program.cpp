#include <fmt/format.h>
#include <jit/dtype.h>
#include <jit/spec_table.h>

#include "generator/functors/functor_tensors.h"
#include "generator/kernels/backward_wgmma/family.h"
#include "generator/kernels/listed_gradients.h"
#include "generator/problem/tma_operands.h"
#include "generator/program/emit.h"
#include "generator/program/functor_source.h"
#include "templates/backward_wgmma/smem_layout.cuh"
#include "templates/base/element.cuh"

namespace jit::listed_gradients {
namespace {

constexpr int stages = 2;

bool has_roles(const AttentionSpec& spec) {
  return backward_wgmma::has_roles(spec.list_block, /*pair=*/false);
}
bool has_query_consumer(const AttentionSpec& spec) {
  return backward_wgmma::has_query_consumer(spec.head_dim, spec.value_head_dim(), has_roles(spec));
}

// As those of other one-pass kernels: with fewer for consumers, ptxas lets wgmma wait for one another.
backward_wgmma::RegisterShares register_shares(const AttentionSpec& spec) {
  if (has_roles(spec)) return {.producer = 64, .consumer = 192, .dq = 64};
  if (has_query_consumer(spec)) return {.producer = 32, .consumer = 208, .dq = 64};
  return {.producer = 24, .consumer = 240};
}

backward_wgmma::SmemLayout layout_of(const AttentionSpec& spec) {
  return backward_wgmma::smem_layout({.head_dim = spec.head_dim,
                                      .head_dim_v = spec.value_head_dim(),
                                      .tile_kv = spec.list_block,
                                      .stages = stages,
                                      .pair = false,
                                      .deterministic = false,
                                      .draws = false,
                                      .is_bounded = true,
                                      .is_wide = false,
                                      .is_listed = true});
}

// The attention without lists: to the consumers queries are those of varlen sequences.
std::string config_text(const AttentionSpec& spec, FunctorSource functors) {
  const backward_wgmma::RegisterShares shares = register_shares(spec);
  const std::string lists = functors.lists_type;
  functors.lists_type.clear();
  AttentionSpec plain = spec;
  plain.list_block = 0;
  plain.list_queries = 1;
  plain.max_logit = plain.row_max = plain.mean_score = false;
  std::string text = "struct Config : WgmmaProducts {\n" + spec_lines(plain, functors);
  text += fmt::format("  using QueryLists = {};  // the keys that each query sees\n", lists);
  text += number_line("tile_q", backward_wgmma::step_queries, "queries per step") +
          number_line("tile_kv", spec.list_block, "keys per block") +
          number_line("stages", stages, "tiles of queries in shared memory") +
          "  static constexpr bool deterministic = false;  // no tile waits for another one to add dQ\n"
          "  static constexpr bool dropout_mask_ahead = false;  // there is no dropout\n"
          "  static constexpr bool pair = false;  // a block has its tile of keys alone\n" +
          number_line("producer_registers", shares.producer, "per thread, once shared out") +
          number_line("consumer_registers", shares.consumer, "the same for consumers");
  if (shares.dq != 0) text += number_line("dq_registers", shares.dq, "the same for the one that has dQ");
  return text + "};\n";
}

}  // namespace

bool serves(const AttentionSpec& spec) {
  constexpr int narrowest = 32;  // boxes of a row have whole swizzles
  const auto fits = [](int head_dim) {
    return head_dim > narrowest && head_dim <= backward_wgmma::largest_of_rows && head_dim % 8 == 0;
  };
  return (spec.list_block == backward_wgmma::keys_of_block(true) ||
          spec.list_block == backward_wgmma::keys_of_block(false)) &&
         !spec.list_slots && !spec.values_in_keys && !has_positions(spec) && spec.output.is_none() &&
         spec.alignment == tma_alignment && backward_wgmma::step_queries % spec.gqa_ratio == 0 &&
         fits(spec.head_dim) && fits(spec.value_head_dim());
}

Sizes sizes(const AttentionSpec& spec) {
  return {.tile_floats = backward_wgmma::step_queries * backward_wgmma::dq_columns(spec.head_dim),
          .sum_floats =
              spec.list_block * (padded_head_dim(spec.head_dim) + padded_head_dim(spec.value_head_dim()))};
}

Program program(const AttentionSpec& spec) {
  const FunctorSource functors = functor_source(spec, ScoreNumbers::duals);
  Program program;
  program.headers = {backward_wgmma::wgmma_products(spec, has_roles(spec), /*pair=*/false)};
  program.threads = (backward_wgmma::consumer_count(has_query_consumer(spec)) + 1) * 128;
  program.smem_bytes = layout_of(spec).total;
  program.name = fmt::format("list_gradients_wgmma_{}", problem_name(spec));
  program.ahead = program.name + "_rows";
  program.facts = {{"spec", fmt::format("list_gradients {}", to_string(spec))}};
  std::string& source = program.source;
  source = fmt::format("// Gradients from lists of keys: {}. Generated: change the spec, not this file.\n",
                       to_string(spec));
  source +=
      "#include \"backward_wgmma_lists/kernel.cuh\"\n#include \"wgmma_products.cuh\"\n\nusing namespace "
      "jit;\n\n";
  source += functors.definitions + config_text(spec, functors);
  source += params_assertion() + gradient_params_assertion() + functors.assertions;
  source += fmt::format(
      "static_assert(sizeof(ListedMaps) == {} && sizeof(ListedParams) == {}, "
      "\"host and device disagree on the kernels' parameters\");\n"
      "static_assert(backward_wgmma::smem_layout<Config>().total == {}, "
      "\"host and device disagree on shared memory\");\n\n",
      sizeof(ListedMaps), sizeof(ListedParams), program.smem_bytes);
  source += fmt::format(
      "extern \"C\" __global__ void __launch_bounds__(backward_wgmma::KernelTraits<Config>::threads, 1)\n"
      "{}(const __grid_constant__ AttentionParams params, const __grid_constant__ GradientParams gradients, "
      "const __grid_constant__ ListedMaps maps) {{\n"
      "  backward_wgmma::list_gradients<Config>(params, gradients, maps);\n}}\n\n"
      "extern \"C\" __global__ void __launch_bounds__(listed_threads, 6)\n"
      "{}(const __grid_constant__ ListedParams params) {{\n"
      "  backward_wgmma::listed_rows<Config>(params);\n}}\n",
      program.name, program.ahead);
  return program;
}

}  // namespace jit::listed_gradients
