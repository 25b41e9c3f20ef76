#include <fmt/format.h>
#include <jit/dtype.h>

#include "generator/kernels/backward_wgmma/family.h"
#include "generator/kernels/one_pass.h"
#include "generator/program/emit.h"
#include "generator/program/functor_source.h"
#include "generator/program/wgmma_source.h"
#include "templates/backward/tensor_maps.cuh"
#include "templates/backward_wgmma/smem_layout.cuh"
#include "templates/base/element.cuh"

namespace jit {

SourceFile backward_wgmma::wgmma_products(const AttentionSpec& spec, bool roles, bool pair) {
  const int mma_k = facts(spec.dtype).mma_k;
  const int d = padded_head_dim(spec.head_dim), dv = padded_head_dim(spec.value_head_dim());
  const bool queries = has_query_consumer(spec.head_dim, spec.value_head_dim(), roles);
  std::string text;
  WgmmaProduct scores{.dtype = spec.dtype, .n = backward_wgmma::step_queries, .steps = d / mma_k};
  text += wgmma_function("wgmma_scores", "D = A B: 64 rows of K, tile_q rows of Q.", scores);
  if (queries && !roles) {
    scores.a_in_registers = true;
    text += wgmma_function("wgmma_scores_rs", "The same of rows in registers.", scores);
  }
  text += wgmma_function("wgmma_d_scores", "D = A B: 64 rows of V, tile_q rows of dO.",
                         {.dtype = spec.dtype, .n = backward_wgmma::step_queries, .steps = dv / mma_k});
  WgmmaProduct sum{.dtype = spec.dtype,
                   .n = dv,
                   .steps = backward_wgmma::step_queries / mma_k,
                   .accumulate = true,
                   .a_in_registers = true,
                   .b_along_rows = true,
                   .columns_at_once = roles ? 128 : 0};
  text += wgmma_function("wgmma_dv", "D += A B: tile_q columns of P, tile_q rows of dO.", sum);
  sum.n = d;
  text += wgmma_function("wgmma_dk", "D += A B: tile_q columns of dS, tile_q rows of Q.", sum);
  WgmmaProduct dq{.dtype = spec.dtype,
                  .n = dq_part_columns(spec.head_dim, queries),
                  .steps = keys_of_block(roles) / mma_k,
                  .b_along_rows = true};
  text += wgmma_function(
      "wgmma_dq", "D = A B: the block's columns of dS, its rows of K, some of the columns of these.", dq);
  dq.accumulate = true;
  if (pair) text += wgmma_function("wgmma_dq_of_peer", "D += A B: the same of the other block's keys.", dq);
  return wgmma_products_file(text);
}

namespace {

std::string config_name(const AttentionSpec& spec, const BackwardWgmma& config) {
  return fmt::format("{}_q{}kv{}s{}", problem_name(spec), backward_wgmma::step_queries,
                     backward_wgmma::tile_kv(spec, config), config.stages);
}

// The config, and sizes that all its kernels share.
std::string own_lines(const AttentionSpec& spec, const BackwardWgmma& config) {
  return number_line("tile_q", backward_wgmma::step_queries, "queries per step") +
         number_line("tile_kv", backward_wgmma::tile_kv(spec, config), "keys per block, or pair of blocks") +
         config_lines(Family<BackwardWgmma>::fields(), config);
}

}  // namespace

namespace backward_wgmma {

std::string config_text(const AttentionSpec& spec, const BackwardWgmma& config) {
  return spec_lines(spec, functor_source(spec)) + own_lines(spec, config);
}

Program prepare_program(const AttentionSpec& spec, const BackwardWgmma& config) {
  const std::string name = config_name(spec, config), text = config_text(spec, config);
  const int dv = spec.value_head_dim();
  return one_pass::prepare_program(spec,
                                   {.family = "backward_wgmma",
                                    .config_name = name,
                                    .what = "what is known of queries",
                                    .config = text,
                                    .facts = config,
                                    .threads = 256,  // prepare_threads
                                    .blocks_per_sm = dv <= 64    ? 6
                                                     : dv <= 128 ? 5
                                                                 : 4},
                                   config.deterministic);
}

Program convert_program(const AttentionSpec& spec, const BackwardWgmma& config) {
  const std::string name = config_name(spec, config), text = config_text(spec, config);
  const int threads = dq_parts(spec.head_dim, has_query_consumer(spec)) * 128;
  const int threads_per_sm = threads == 128 ? 1536 : threads == 256 ? 1280 : 1152;
  return one_pass::convert_program(spec, {.family = "backward_wgmma",
                                          .config_name = name,
                                          .what = "dQ in 16 bits",
                                          .config = text,
                                          .facts = config,
                                          .threads = threads,
                                          .blocks_per_sm = threads_per_sm / threads});
}

}  // namespace backward_wgmma

Program Family<BackwardWgmma>::program(const AttentionSpec& spec, const BackwardWgmma& config) {
  const FunctorSource functors = functor_source(spec, ScoreNumbers::duals);
  const backward_wgmma::RegisterShares shares = backward_wgmma::register_shares(spec);
  Program program;
  program.headers = {backward_wgmma::wgmma_products(spec, backward_wgmma::has_roles(spec), config.pair)};
  const Footprint needs = footprint(spec, config);
  program.threads = needs.threads;
  program.smem_bytes = needs.smem_bytes;
  program.cluster = backward_wgmma::blocks_per_tile(config);
  program.name = fmt::format("attention_backward_wgmma_{}", config_name(spec, config));

  std::string& source = program.source;
  source =
      fmt::format("// Attention backward: {}. Generated: change the spec, not this file.\n", to_string(spec));
  source += "#include \"backward_wgmma/kernel.cuh\"\n#include \"wgmma_products.cuh\"\n";
  if (config.dropout_mask_ahead) source += dropout_mask_include;
  source += "\nusing namespace jit;\n\n";
  source += functors.definitions;
  source += "struct Config : WgmmaProducts {\n" + spec_lines(spec, functors) + own_lines(spec, config);
  if (backward_wgmma::has_narrow_blocks(spec))
    source += number_line("looks_at_once", 4, "windows of a table of blocks that the producer reads at once");
  source +=
      number_line("producer_registers", shares.producer, "registers per producer thread after setmaxnreg");
  source +=
      number_line("consumer_registers", shares.consumer, "registers per consumer thread after setmaxnreg");
  if (shares.dq != 0)
    source +=
        number_line("dq_registers", shares.dq, "registers per thread of the consumer of dQ after setmaxnreg");
  source += "};\n";
  source += params_assertion() + gradient_params_assertion() + functors.assertions;
  const bool plain = is_plain(spec);
  const std::string_view maps = plain ? "TensorMaps" : "SequenceMaps";
  source += fmt::format(
      "static_assert(sizeof({}) == {}, "
      "\"host and device disagree on the tensor maps\");\n"
      "static_assert(backward_wgmma::smem_layout<Config>().total == {}, "
      "\"host and device disagree on shared memory\");\n\n",
      maps, plain ? sizeof(TensorMaps) : sizeof(SequenceMaps), program.smem_bytes);
  source += fmt::format(
      "extern \"C\" __global__ void {}__launch_bounds__(backward_wgmma::KernelTraits<Config>::threads, 1)\n"
      "{}(const __grid_constant__ AttentionParams params, const __grid_constant__ GradientParams gradients, "
      "const __grid_constant__ {} maps) {{\n"
      "  backward_wgmma::attention_backward<Config>(params, gradients, maps);\n}}\n",
      config.pair ? "__cluster_dims__(2, 1, 1) " : "", program.name, maps);
  if (config.dropout_mask_ahead) {
    program.ahead = dropout_mask_name(program.name);
    source += dropout_mask_source("KeysByQueries", program.name);
  }
  return program;
}

}  // namespace jit
