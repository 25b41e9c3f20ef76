#include "generator/operations/key_mass/program.h"

#include <fmt/format.h>
#include <jit/dtype.h>
#include <jit/spec_table.h>

#include "generator/operations/spec_rules.h"
#include "generator/program/emit.h"
#include "generator/program/functor_source.h"
#include "templates/base/element.cuh"
#include "templates/key_mass/params.cuh"

namespace jit {

AttentionSpec scores_of(const KeyMassSpec& spec) {
  const AttentionSpec& given = spec.attention;
  return {.dtype = given.dtype,
          .head_dim = given.head_dim,
          .gqa_ratio = given.gqa_ratio,
          .alignment = given.alignment,
          .seqlen_q = given.seqlen_q,
          .seqlen_kv = given.seqlen_kv,
          .sequences_q = given.sequences_q,
          .sequences_kv = given.sequences_kv,
          .mask = given.mask,
          .score = given.score,
          .softmax_scale = given.softmax_scale};
}

void validate(const KeyMassSpec& spec) {
  const AttentionSpec& given = spec.attention;
  validate(given);
  if (has_fp8_queries(given) || has_narrow_keys(given))
    refuse_spec("kv_dtype", std::string(to_string(given.key_dtype())),
                "must be bf16 or fp16, as q is, for key masses", "bf16");
  if (given.head_dim > most_warp_columns)
    refuse_spec("head_dim", std::to_string(given.head_dim),
                fmt::format("must be at most {} for key masses", most_warp_columns),
                std::to_string(most_warp_columns));
  if (given.sequences_kv != SequenceKind::dense && given.sequences_kv != SequenceKind::varlen)
    refuse_spec("sequences_kv", std::string(to_string(given.sequences_kv)),
                "must be dense or varlen for key masses", "varlen");
  for (const auto& [name, value] : {std::pair{"q_positions", given.q_positions},
                                    {"k_positions", given.k_positions},
                                    {"checked", given.checked},
                                    {"list_block", given.list_block != 0},
                                    {"key_arrivals", given.key_arrivals}}) {
    if (value) refuse_spec(name, "true", "must be false for key masses", "false");
  }
}

Program key_mass_program(const KeyMassSpec& spec) {
  AttentionSpec scores = scores_of(spec);
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
