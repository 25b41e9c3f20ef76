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
  return reduction == BlockReduction::mean ? "mean" : "max";
}

}  // namespace

void validate(const ScoreBlocksSpec& spec) {
  const AttentionSpec& given = spec.attention;
  validate_scores(given, "scores of blocks");
  if (given.alignment != 16)
    refuse_spec("alignment", std::to_string(given.alignment),
                "must be 16 for scores of blocks, which TMA copies", "16");
  const int size = spec.block_size;
  if (size < least_block || size > score_blocks_keys || !std::has_single_bit(static_cast<unsigned>(size)))
    refuse_spec("block_size", std::to_string(size), "must be 8, 16, 32, 64 or 128",
                std::to_string(
                    std::bit_ceil(static_cast<unsigned>(std::clamp(size, least_block, score_blocks_keys)))));
}

Program score_blocks_program(const ScoreBlocksSpec& spec) {
  const AttentionSpec scores = scores_of(spec.attention);
  const FunctorSource functors = functor_source(scores, ScoreNumbers::duals);
  const std::string what =
      fmt::format("{}{} {}", name_of(spec.reduction), spec.block_size, to_string(scores));
  Program program;
  program.threads = score_blocks_threads;
  program.blocks_per_sm = 1;
  program.smem_bytes = score_blocks_smem(scores.head_dim).total;
  program.name =
      fmt::format("score_blocks_{}{}_{}", name_of(spec.reduction), spec.block_size, problem_name(scores));
  program.facts = {{"spec", "score_blocks " + what}};
  program.headers = {
      {"wgmma_products.cuh",
       "// Products of tiles by wgmma, for one kernel. Generated: change the spec, not this file.\n#pragma "
       "once\n\n"
       "struct WgmmaProducts {\n" +
           wgmma_function("wgmma_qk", "D = A B: 64 rows of Q, a tile of K.",
                          {.dtype = scores.dtype,
                           .n = score_blocks_keys,
                           .steps = padded_head_dim(scores.head_dim) / facts(scores.dtype).mma_k}) +
           "};\n"}};
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
  source += "};\n" +
            kernel_text(program, "ScoreBlocksParams", sizeof(ScoreBlocksParams), "score_blocks",
                        params_assertion() + functors.assertions +
                            fmt::format("static_assert(ScoreBlocksTraits<Config>::layout.total == {}, \"host "
                                        "and device disagree on shared memory\");\n",
                                        program.smem_bytes));
  return program;
}

}  // namespace jit
