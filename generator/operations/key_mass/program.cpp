#include "generator/operations/key_mass/program.h"

#include <fmt/format.h>
#include <jit/dtype.h>
#include <jit/spec_table.h>

#include "generator/operations/scores.h"
#include "generator/operations/spec_rules.h"
#include "generator/program/emit.h"
#include "generator/program/functor_source.h"
#include "templates/key_mass/params.cuh"

namespace jit {

void validate(const KeyMassSpec& spec) { validate_scores(spec.attention, "key masses"); }

Program key_mass_program(const KeyMassSpec& spec) {
  AttentionSpec scores = scores_of(spec.attention);
  const int ratio = scores.gqa_ratio;
  if (spec.per_query_head) scores.gqa_ratio = 1;  // heads whose sums are one
  const FunctorSource functors = functor_source(scores, ScoreNumbers::duals);
  const std::string heads = spec.per_query_head ? fmt::format("_heads{}", ratio) : "";
  Program program;
  program.threads = key_mass_warps * 32;
  program.smem_bytes = key_mass_smem(scores.head_dim).total;
  program.name = fmt::format("key_mass_{}{}", problem_name(scores), heads);
  program.facts = {{"spec", fmt::format("key_mass{} {}", heads, to_string(scores))}};
  std::string& source = program.source;
  source =
      fmt::format("// Mass of keys: {}. Generated: change the spec, not this file.\n", to_string(scores));
  source += "#include \"key_mass/kernel.cuh\"\n\nusing namespace jit;\n\n" + functors.definitions;
  source += "struct Config {\n" + spec_lines(scores, functors);
  source += constant_line("int", "heads_per_key", std::to_string(spec.per_query_head ? ratio : 1),
                          "heads of mass that share a KV head");
  source += constant_line("int", "tile_q", std::to_string(key_mass_queries), "queries per step");
  source +=
      constant_line("int", "tile_kv", std::to_string(key_mass_keys(scores.head_dim)), "keys of a block");
  source += "};\n" + kernel_text(program, "KeyMassParams", sizeof(KeyMassParams), "sum_key_mass",
                                 params_assertion() + functors.assertions);
  return program;
}

}  // namespace jit
