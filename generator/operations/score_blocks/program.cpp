#include "generator/operations/score_blocks/program.h"

#include <algorithm>
#include <bit>

#include <fmt/format.h>
#include <jit/dtype.h>
#include <jit/spec_table.h>

#include "generator/operations/scores.h"
#include "generator/operations/spec_rules.h"
#include "generator/program/emit.h"
#include "generator/program/functor_source.h"
#include "generator/program/wgmma_source.h"
#include "templates/score_blocks/params.cuh"

namespace jit {
namespace {

constexpr int least_block = 8;

std::string_view name_of(BlockReduction reduction) {
  switch (reduction) {
    case BlockReduction::mean:
      return "mean";
    case BlockReduction::probability:
      return "probability";
    case BlockReduction::max:
      break;
  }
  return "max";
}

}  // namespace

void validate(const ScoreBlocksSpec& spec) {
  const AttentionSpec& given = spec.attention;
  validate_scores(given, "scores of blocks");
  if (given.alignment != 16)
    refuse_spec("alignment", std::to_string(given.alignment),
                "must be 16 for scores of blocks, which TMA copies", "16");
  const bool is_probability = spec.reduction == BlockReduction::probability;
  const int size = spec.block_size, least = is_probability ? 1 : least_block;
  if (size < least || size > score_blocks_keys || !std::has_single_bit(static_cast<unsigned>(size)))
    refuse_spec(
        "block_size", std::to_string(size),
        is_probability ? "must be a power of two up to 128" : "must be 8, 16, 32, 64 or 128",
        std::to_string(std::bit_ceil(static_cast<unsigned>(std::clamp(size, least, score_blocks_keys)))));
  if (spec.key_span != 1 && !(is_probability && spec.key_span == 2))
    refuse_spec("key_span", std::to_string(spec.key_span),
                is_probability ? "must be 1 or 2" : "must be 1 where blocks have no probabilities", "1");
}

Program score_blocks_program(const ScoreBlocksSpec& spec) {
  const AttentionSpec scores = scores_of(spec.attention);
  const FunctorSource functors = functor_source(scores, ScoreNumbers::duals);
  const bool is_probability = spec.reduction == BlockReduction::probability;
  const std::string reduction =
      fmt::format("{}{}{}", name_of(spec.reduction), spec.block_size,
                  spec.key_span == 1 ? "" : "_span" + std::to_string(spec.key_span));
  const std::string what = fmt::format("{} {}", reduction, to_string(scores));
  Program program;
  program.threads = score_blocks_threads;
  program.blocks_per_sm = 1;
  program.smem_bytes = score_blocks_smem(scores.head_dim, is_probability).total;
  program.name = fmt::format("score_blocks_{}_{}", reduction, problem_name(scores));
  program.facts = {{"spec", "score_blocks " + what}};
  program.headers = {wgmma_products_file(
      wgmma_function("wgmma_scores", "D = A B: 64 rows of Q, a tile of K.",
                     {.dtype = scores.dtype,
                      .n = score_blocks_keys,
                      .steps = padded_head_dim(scores.head_dim) / facts(scores.dtype).mma_k}))};
  std::string& source = program.source;
  source = fmt::format("// Scores of blocks: {}. Generated: change the spec, not this file.\n", what);
  source +=
      "#include \"score_blocks/kernel.cuh\"\n#include \"wgmma_products.cuh\"\n\nusing namespace jit;\n\n";
  source += functors.definitions + "struct Config : WgmmaProducts {\n" + spec_lines(scores, functors);
  source += constant_line("int", "tile_q", std::to_string(score_blocks_queries), "queries of a tile");
  source += constant_line("int", "tile_kv", std::to_string(score_blocks_keys), "keys of a tile");
  source += constant_line("int", "block_size", std::to_string(spec.block_size), "keys of a block");
  source += constant_line("bool", "is_mean", spec.reduction == BlockReduction::mean ? "true" : "false",
                          "a block has the mean of its scores, else the largest one");
  source += constant_line("bool", "sums_heads", is_probability ? "true" : "false",
                          "a block has the probabilities of its keys, summed over heads of a group");
  source += constant_line("int", "key_span", std::to_string(spec.key_span), "strides of a key");
  source += "};\n" +
            kernel_text(program, "ScoreBlocksParams", sizeof(ScoreBlocksParams), "score_blocks",
                        params_assertion() + functors.assertions +
                            fmt::format("static_assert(ScoreBlocksTraits<Config>::layout.total == {}, \"host "
                                        "and device disagree on shared memory\");\n",
                                        program.smem_bytes));
  return program;
}

}  // namespace jit
