#include "generator/operations/block_mask/program.h"

#include <algorithm>

#include <fmt/format.h>

#include "generator/functors/functor_node.h"
#include "generator/operations/spec_rules.h"
#include "generator/program/emit.h"
#include "templates/block_mask/params.cuh"

namespace jit {
namespace {

void check_side(std::string_view field, int value) {
  if (value >= block_step && value <= most_in_block && value % block_step == 0) return;
  const int nearest =
      std::clamp((value + block_step - 1) / block_step * block_step, block_step, most_in_block);
  refuse_spec(field, std::to_string(value),
              fmt::format("must be a multiple of {} from {} to {}", block_step, block_step, most_in_block),
              std::to_string(nearest));
}

}  // namespace

AttentionSpec attention_of(const BlockMaskSpec& spec) {
  const auto kind = [](bool is_varlen) { return is_varlen ? SequenceKind::varlen : SequenceKind::dense; };
  return {.sequences_q = kind(spec.varlen_q), .sequences_kv = kind(spec.varlen_kv), .mask = spec.mask};
}

void validate(const BlockMaskSpec& spec) {
  check_side("block_q", spec.block_q);
  check_side("block_kv", spec.block_kv);
  for (const FunctorTensorSpec& tensor : spec.mask.tensors()) {
    if (tensor.name == "block_mask")
      refuse_spec("mask", spec.mask.to_string(), "must have no block_mask in it: that is what is made of it",
                  "the mask within it");
  }
  validate(attention_of(spec));
}

Program block_mask_program(const BlockMaskSpec& spec) {
  const AttentionSpec attention = attention_of(spec);
  const FunctorSource functors = functor_source(attention);
  Program program;
  program.threads = block_mask_threads;
  program.name = fmt::format("block_mask_{}x{}_{}", spec.block_q, spec.block_kv, problem_name(attention));
  program.facts = {{"spec", fmt::format("block_mask {}x{}{} {}", spec.block_q, spec.block_kv,
                                        spec.scores ? " with scores" : "", to_string(attention))}};
  std::string& source = program.source;
  source =
      fmt::format("// Block mask of {} queries by {} keys: {}. Generated: change the spec, not this file.\n",
                  spec.block_q, spec.block_kv, spec.mask.to_string());
  source += "#include \"block_mask/kernel.cuh\"\n\nusing namespace jit;\n\n";
  source += functors.definitions;
  source += "struct Config {\n" + spec_lines(attention, functors);
  source += constant_line("int", "block_q", std::to_string(spec.block_q), "queries of a block");
  source += constant_line("int", "block_kv", std::to_string(spec.block_kv), "keys of a block");
  source += constant_line("bool", "knows_scores", spec.scores ? "true" : "false",
                          "there are bits for the scores of partial blocks");
  source += "};\n" + kernel_text(program, "BlockMaskParams", sizeof(BlockMaskParams), "make_block_mask",
                                 functors.assertions);
  return program;
}

}  // namespace jit
