#include "generator/operations/key_mass/program.h"

#include <fmt/format.h>
#include <jit/dtype.h>
#include <jit/spec_table.h>

#include "generator/operations/scores.h"
#include "generator/operations/spec_rules.h"
#include "generator/program/emit.h"
#include "generator/program/functor_source.h"
#include "generator/program/wgmma_source.h"
#include "templates/key_mass/params.cuh"
#include "templates/key_mass_wgmma/params.cuh"

namespace jit {

void validate(const KeyMassSpec& spec) { validate_scores(spec.attention, "key masses", true); }

namespace {

// The parts that both programs share.
struct Written {
  AttentionSpec scores;  // of the heads whose masses are summed
  int heads_per_key;
  std::string heads;
  FunctorSource functors;

  explicit Written(const KeyMassSpec& spec)
      : scores(scores_of(spec.attention)),
        heads_per_key(spec.per_query_head ? scores.gqa_ratio : 1),
        heads(spec.per_query_head ? fmt::format("_heads{}", scores.gqa_ratio) : "") {
    if (spec.per_query_head) scores.gqa_ratio = 1;
    functors = functor_source(scores, ScoreNumbers::duals);
  }

  std::string config_lines(int tile_q, int tile_kv) const {
    return spec_lines(scores, functors) +
           constant_line("int", "heads_per_key", std::to_string(heads_per_key),
                         "heads of mass that share a KV head") +
           constant_line("int", "tile_q", std::to_string(tile_q), "queries per step") +
           constant_line("int", "tile_kv", std::to_string(tile_kv), "keys of a block");
  }
};

}  // namespace

Program key_mass_program(const KeyMassSpec& spec) {
  const auto [scores, heads_per_key, heads, functors] = Written(spec);
  Program program;
  program.threads = key_mass_warps * 32;
  program.smem_bytes = key_mass_smem(scores.head_dim).total;
  program.name = fmt::format("key_mass_{}{}", problem_name(scores), heads);
  program.facts = {{"spec", fmt::format("key_mass{} {}", heads, to_string(scores))}};
  std::string& source = program.source;
  source =
      fmt::format("// Mass of keys: {}. Generated: change the spec, not this file.\n", to_string(scores));
  source += "#include \"key_mass/kernel.cuh\"\n\nusing namespace jit;\n\n" + functors.definitions;
  source +=
      "struct Config {\n" + Written(spec).config_lines(key_mass_queries, key_mass_keys(scores.head_dim));
  source += "};\n" + kernel_text(program, "KeyMassParams", sizeof(KeyMassParams), "sum_key_mass",
                                 params_assertion() + functors.assertions);
  return program;
}

Program key_mass_wgmma_program(const KeyMassSpec& spec) {
  const Written written(spec);
  const AttentionSpec& scores = written.scores;
  Program program;
  program.threads = mass_threads;
  program.blocks_per_sm = 1;
  program.smem_bytes = key_mass_wgmma_smem(scores.head_dim).total;
  program.name = fmt::format("key_mass_wgmma_{}{}", problem_name(scores), written.heads);
  program.facts = {{"spec", fmt::format("key_mass{} {}", written.heads, to_string(scores))}};
  const WgmmaProduct qk{.dtype = scores.dtype,
                        .n = mass_consumer_keys,
                        .steps = padded_head_dim(scores.head_dim) / facts(scores.dtype).mma_k};
  program.headers = {wgmma_products_file(
      wgmma_function("wgmma_scores", "D = A B: 64 rows of Q, a consumer's rows of K.", qk))};
  std::string& source = program.source;
  source =
      fmt::format("// Mass of keys: {}. Generated: change the spec, not this file.\n", to_string(scores));
  source +=
      "#include \"key_mass_wgmma/kernel.cuh\"\n#include \"wgmma_products.cuh\"\n\nusing namespace jit;\n\n" +
      written.functors.definitions;
  source += "struct Config : WgmmaProducts {\n" + written.config_lines(mass_step_queries, mass_block_keys);
  source +=
      "};\n" +
      kernel_text(program, "KeyMassMaps", sizeof(KeyMassMaps), "sum_key_mass_by_wgmma",
                  params_assertion() + written.functors.assertions +
                      fmt::format("static_assert(KeyMassWgmmaTraits<Config>::layout.total == {}, \"host "
                                  "and device disagree on shared memory\");\n",
                                  program.smem_bytes));
  return program;
}

}  // namespace jit
