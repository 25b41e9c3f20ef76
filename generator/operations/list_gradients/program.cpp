#include "generator/operations/list_gradients/program.h"

#include <algorithm>
#include <array>
#include <optional>

#include <fmt/format.h>
#include <jit/spec_table.h>

#include "generator/functors/functor_tensors.h"
#include "generator/kernels/listed_gradients.h"
#include "generator/operations/spec_rules.h"
#include "generator/program/emit.h"
#include "generator/program/functor_source.h"
#include "templates/list_gradients/params.cuh"

namespace jit {
namespace {

constexpr int every_gpu_smem = 99 * 1024, large_smem = 227 * 1024;

ListGradientSmem smem_of(const AttentionSpec& spec, const ListTile& tile) {
  return list_gradient_smem(spec.head_dim, spec.value_head_dim(), spec.values_in_keys, tile);
}

// The largest tile that fits; prefers as many rows as lists have over many keys.
std::optional<ListTile> tile_of(const AttentionSpec& spec, int smem_bytes) {
  constexpr std::array<ListTile, 7> tiles = {
      {{64, 64}, {64, 32}, {32, 64}, {32, 32}, {16, 64}, {16, 32}, {16, 16}}};
  const int rows = spec.gqa_ratio * spec.list_queries;
  for (const ListTile& tile : tiles) {
    const bool is_filled = tile.rows == 16 || tile.rows < 2 * rows;
    if (is_filled && smem_of(spec, tile).total <= smem_bytes) return tile;
  }
  return {};
}

// The attention spec without outputs that have no gradients.
AttentionSpec listed(const ListGradientsSpec& spec) {
  AttentionSpec attention = spec.attention;
  attention.max_logit = attention.row_max = attention.mean_score = false;
  return attention;
}

Program list_gradients_program(const AttentionSpec& spec, const ListTile& tile) {
  const FunctorSource functors = functor_source(spec, ScoreNumbers::duals);
  Program program;
  program.threads = list_gradient_threads;
  program.smem_bytes = smem_of(spec, tile).total;
  program.name = fmt::format("list_gradients_{}x{}_{}", tile.rows, tile.keys, problem_name(spec));
  program.facts = {{"spec", fmt::format("list_gradients {}", to_string(spec))}};
  std::string& source = program.source;
  source = fmt::format("// Gradients from lists of keys: {}. Generated: change the spec, not this file.\n",
                       to_string(spec));
  source += "#include \"list_gradients/kernel.cuh\"\n\nusing namespace jit;\n\n" + functors.definitions;
  source += "struct Config {\n" + spec_lines(spec, functors);
  source += constant_line("bool", "shares_values", spec.values_in_keys ? "true" : "false",
                          "values are the first columns of keys");
  source += constant_line("int", "tile_q", std::to_string(tile.rows), "rows of queries of a step");
  source += constant_line("int", "tile_kv", std::to_string(tile.keys), "keys of a step");
  source += "};\n" + kernel_text(program, "ListGradientsParams", sizeof(ListGradientsParams),
                                 "list_gradients", params_assertion() + functors.assertions);
  return program;
}

}  // namespace

void validate(const ListGradientsSpec& spec) {
  const AttentionSpec& given = spec.attention;
  validate(given);
  if (!has_lists(given))
    refuse_spec("list_block", "0",
                "must be from 1 to 128: gradients without lists are those of Attention::backward", "1");
  if (given.sequences_kv != SequenceKind::varlen)
    refuse_spec("sequences_kv", std::string(to_string(given.sequences_kv)),
                "must be varlen for gradients from lists: a view of pages as rows is", "varlen");
  if (given.key_arrivals)
    refuse_spec("key_arrivals", "true", "must be false for gradients from lists", "false");
  if (spec.part_bytes < 1)
    refuse_spec("part_bytes", std::to_string(spec.part_bytes), "must be at least 1", "1");
  if (!tile_of(given, every_gpu_smem))
    refuse_spec("head_dim", std::to_string(given.head_dim), "must be smaller for gradients from lists",
                "256");
}

OperationPrograms list_gradients_programs(const ListGradientsSpec& spec) {
  const AttentionSpec attention = listed(spec);
  const ListTile small = *tile_of(attention, every_gpu_smem), large = *tile_of(attention, large_smem);
  if (listed_gradients::serves(attention))
    return {list_gradients_program(attention, small), listed_gradients::program(attention)};
  if (small.rows == large.rows && small.keys == large.keys) return list_gradients_program(attention, small);
  return {list_gradients_program(attention, small), list_gradients_program(attention, large)};
}

}  // namespace jit
