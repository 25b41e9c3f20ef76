// The fields of forward_split_kv, rules and search grid.
#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <jit/dtype.h>
#include <jit/spec_table.h>

#include "generator/functors/functor_node.h"
#include "generator/kernels/forward_split_kv/family.h"
#include "generator/kernels/tma_rules.h"
#include "templates/forward_split_kv/smem_layout.cuh"

namespace jit {
namespace {

// The most queries of dense sequences; with more, other families are faster.
constexpr std::int64_t decoded_queries = 8;

// Registers of loop counters, addresses and the first warp's state of upcoming work; of softmax state and
// fragments; of masks and scores. Calibrated with ptxas.
constexpr int other_registers = 64;
constexpr int other_registers_beside_boxes = 40;  // TMA producer warps need no fragments
constexpr int other_registers_of_few_rows = 96;
constexpr int other_registers_of_few_rows_beside_boxes = 32;  // measured with token scales
constexpr int functor_registers = 8;
constexpr int largest_score_registers = 2;
constexpr int mean_score_registers = 4;
constexpr int fp8_registers = 8;
constexpr int scale_registers = 16;  // of scales copied next to boxes
constexpr int spill_allowance = 40;

constexpr std::array rows = {
    field<&ForwardSplitKv::row_warps>("row_warps", "warps side by side along rows",
                                      {range(1, 8), Affects::tiling, 2}),
    field<&ForwardSplitKv::warp_rows>("warp_rows", "rows of each of these: 16, or 8 over keys of 8 or 4 bits",
                                      {multiples(8, 16), Affects::tiling, 8}),
    field<&ForwardSplitKv::key_warps>("key_warps", "warps that share the keys of a tile",
                                      {range(1, 8), Affects::tiling, 2}),
    field<&ForwardSplitKv::tile_kv>("tile_kv", "keys per step", {multiples(16, 256), Affects::tiling, 128}),
    field<&ForwardSplitKv::stages>("stages", "buffers for tiles of keys and values",
                                   {range(2, 8), Affects::buffers, 2}),
    field<&ForwardSplitKv::copies>("copies", "how tiles of keys and values are copied to shared memory",
                                   {.affects = Affects::tiling, .sample = static_cast<int>(Copies::tma)}),
    field<&ForwardSplitKv::blocks_per_sm>("blocks_per_sm",
                                          "blocks that must fit on a multiprocessor: caps the registers",
                                          {range(1, 8), Affects::registers, 1}),
};
static_assert(rows.size() == member_count<ForwardSplitKv>(), "each member has a row");

// Why TMA cannot copy tiles; empty if it can.
std::string box_rejection(const Case& problem, const ForwardSplitKv& config) {
  const auto& [spec, limits] = problem;
  if (limits.arch != arch_of_tma) {
    return fmt::format("copies = tma needs {}, this is {}; copies = cp_async takes any",
                       to_string(arch_of_tma), to_string(limits.arch));
  }
  if (spec.alignment != 16) {
    return fmt::format(
        "copies = tma needs rows aligned to 16 bytes; spec.alignment is {}; copies = cp_async takes any",
        spec.alignment);
  }
  if (split_column_warps(spec.head_dim, spec.value_head_dim()) > 1) {
    return fmt::format(
        "copies = tma brings rows of up to {} columns; head_dim is {}, head_dim_v {}; copies = cp_async "
        "takes any",
        most_warp_columns, spec.head_dim, spec.value_head_dim());
  }
  if (has_fp8_queries(spec) && spec.descale_per != ScaleKind::head)
    return "copies = tma brings no scales of tokens or blocks beside FP8 q; copies = cp_async does";
  constexpr int scales_of_word = 4;
  if (const int columns = scale_columns(spec) * scales_of_word;
      columns != 0 && (spec.head_dim % columns != 0 || spec.value_head_dim() % columns != 0)) {
    return fmt::format(
        "copies = tma brings scales of blocks in whole words, of multiples of {} columns; head_dim is {}, "
        "head_dim_v {}; copies = cp_async takes any",
        columns, spec.head_dim, spec.value_head_dim());
  }
  return jit::box_rejection(spec, config.tile_kv, true);
}

}  // namespace

std::span<const ConfigField<ForwardSplitKv>> Family<ForwardSplitKv>::fields() { return rows; }

forward_split_kv::Storage Family<ForwardSplitKv>::storage_of(const AttentionSpec& spec) {
  return {.query_bytes = size_of(spec.dtype),
          .element_bytes = size_of(spec.key_dtype()),
          .has_row_scales = spec.descale_per != ScaleKind::head,
          .numbers = facts(spec.key_dtype()).numbers,
          .scale_columns = scale_columns(spec)};
}

bool Family<ForwardSplitKv>::converts_much(const AttentionSpec& spec) {
  const forward_split_kv::Storage stored = storage_of(spec);
  return has_narrow_keys(spec) && !has_fp8_queries(spec) && (stored.numbers > 1 || stored.has_row_scales);
}

bool Family<ForwardSplitKv>::suits(const ProblemShape& shape) {
  return shape.has_device_lengths || shape.seqlen_q <= decoded_queries;
}

bool Family<ForwardSplitKv>::can_read(const ProblemShape& shape, const ForwardSplitKv& config) {
  return config.copies != Copies::tma || shape.tma;
}

std::string Family<ForwardSplitKv>::rejection(const Case& problem, const ForwardSplitKv& config) {
  if (std::string reason = wide_output_rejection(problem.spec, name); !reason.empty()) return reason;
  if (std::string reason = dropout_rejection(problem.spec, name); !reason.empty()) return reason;
  if (config.tile_kv % (16 * config.key_warps) != 0)
    return fmt::format("tile_kv = {} must be a multiple of 16 · key_warps = {}", config.tile_kv,
                       16 * config.key_warps);
  if (config.warp_rows != rows_per_warp) {
    if (!has_narrow_keys(problem.spec))
      return fmt::format("warp_rows = {} is for keys of 8 or 4 bits, this spec has {}; {} serves it",
                         config.warp_rows, facts(problem.spec.key_dtype()).name, rows_per_warp);
    if (split_column_warps(problem.spec.head_dim, problem.spec.value_head_dim()) > 1)
      return fmt::format("warp_rows = {} is for rows of up to {} columns; {} takes any", config.warp_rows,
                         most_warp_columns, rows_per_warp);
  }
  if (config.row_warps * config.key_warps > 16)
    return fmt::format("row_warps · key_warps = {} must be at most 16", config.row_warps * config.key_warps);
  if (config.copies == Copies::tma) {
    if (has_lists(problem.spec))
      return fmt::format("keys of lists are copied row by row: copies = tma with list_block {}",
                         problem.spec.list_block);
    if (std::string reason = box_rejection(problem, config); !reason.empty()) return reason;
  }
  if (has_fixed_bits(problem.spec) && config.key_warps != 1) {
    return fmt::format(
        "key_warps = {} must be 1 with split_keys = {}: all kernels of the spec sum a row alike",
        config.key_warps, problem.spec.split_keys);
  }
  return span_rejection(problem.spec, problem.limits.arch, config.tile_kv);
}

Footprint Family<ForwardSplitKv>::footprint(const AttentionSpec& spec, const ForwardSplitKv& config) {
  const bool uses_tma = config.copies == Copies::tma;
  const int parts = split_column_warps(spec.head_dim, spec.value_head_dim());
  const int warps = config.row_warps * config.key_warps * parts + (uses_tma ? 1 : 0), threads = warps * 32;
  const forward_split_kv::Storage stored = storage_of(spec);
  const bool is_packed = stored.numbers > 1;
  const int columns = is_packed ? stored.columns(spec.value_head_dim())
                                : warp_columns(spec.value_head_dim(), parts, stored.element_bytes);
  const int output = columns * config.warp_rows / 32;
  const int scores = config.tile_kv / config.key_warps * config.warp_rows / 32;
  const int q = spec.head_dim > most_warp_columns ? 4 : stored.columns(spec.head_dim) * config.warp_rows / 64;
  const int functors = functor_count(spec.mask) + functor_count(spec.score);
  const bool copies_scales = uses_tma && (stored.has_row_scales || stored.scale_columns != 0);
  const int others = config.warp_rows < rows_per_warp
                         ? (uses_tma ? other_registers_of_few_rows_beside_boxes : other_registers_of_few_rows)
                         : (uses_tma ? other_registers_beside_boxes : other_registers) +
                               (has_narrow_keys(spec) ? fp8_registers : 0) +
                               (copies_scales ? scale_registers : 0);
  // An SM sub-partition has a quarter of the registers, and every fourth warp.
  constexpr int quarters = 4;
  const int warps_of_quarter = (warps * config.blocks_per_sm + quarters - 1) / quarters;
  const int share = registers_per_sm / quarters / (warps_of_quarter * 32);
  const int cap = std::min(max_registers_per_thread, share / 8 * 8);
  // With the highest cap, any number of functors must leave a legal config: allow spills for them.
  const int slack = spill_allowance + (cap == max_registers_per_thread ? functors * functor_registers : 0);
  return {.threads = threads,
          .smem_bytes = uses_tma ? forward_split_kv::box_layout({.head_dim = spec.head_dim,
                                                                 .head_dim_v = spec.value_head_dim(),
                                                                 .row_warps = config.row_warps,
                                                                 .warp_rows = config.warp_rows,
                                                                 .key_warps = config.key_warps,
                                                                 .tile_kv = config.tile_kv,
                                                                 .stages = config.stages,
                                                                 .has_spans = spec.split_keys != 0},
                                                                storage_of(spec))
                                       .total
                                 : forward_split_kv::smem_layout(
                                       spec.head_dim, spec.value_head_dim(), config.row_warps,
                                       config.warp_rows, config.key_warps, config.tile_kv, config.stages,
                                       spec.sequences_kv == SequenceKind::paged || has_lists(spec),
                                       spec.split_keys != 0, storage_of(spec), has_lists(spec))
                                       .total,
          .registers = output + scores + q + others + functors * functor_registers +
                       (asks_for(spec, largest_scores) ? largest_score_registers : 0) +
                       (spec.mean_score ? mean_score_registers : 0),
          .register_cap = cap,
          .blocks_per_sm = config.blocks_per_sm,
          .register_slack = slack,
          .register_doubt = 8};
}

std::vector<ForwardSplitKv> Family<ForwardSplitKv>::space(const Case& problem) {
  struct Warps {
    int row, key;
  };
  std::vector<ForwardSplitKv> configs;
  // 16-bit keys in boxes belong to forward_split_wgmma.
  std::vector<Copies> kinds = {Copies::cp_async};
  if (problem.limits.arch == arch_of_tma && has_narrow_keys(problem.spec)) kinds.push_back(Copies::tma);
  // Fewer rows fit into shared memory if they have more columns.
  const bool is_wide = split_column_warps(problem.spec.head_dim, problem.spec.value_head_dim()) > 1;
  const auto warp_counts =
      is_wide ? std::vector<Warps>{{1, 1}, {1, 2}, {1, 4}, {2, 1}, {2, 2}, {4, 1}}
      : has_fixed_bits(problem.spec)
          ? std::vector<Warps>{{1, 1}, {2, 1}, {4, 1}, {8, 1}}
          : std::vector<Warps>{{1, 4}, {1, 8}, {1, 2}, {2, 2}, {2, 4}, {4, 1}, {4, 2}, {8, 1}};
  const std::vector<int> key_counts = is_wide ? std::vector{16, 32, 64} : std::vector{32, 64, 128};
  const auto add = [&](const ForwardSplitKv& config) {
    for (const Copies copies : kinds) {
      configs.push_back(config);
      configs.back().copies = copies;
    }
  };
  for (const Warps warps : warp_counts) {
    for (const int tile_kv : key_counts) {
      if (tile_kv % (16 * warps.key) != 0) continue;
      for (const int stages : {2, 3, 4, 6}) {
        for (const int blocks_per_sm : {1, 2, 3, 4}) {
          add({.row_warps = warps.row,
               .key_warps = warps.key,
               .tile_kv = tile_kv,
               .stages = stages,
               .blocks_per_sm = blocks_per_sm});
        }
      }
    }
  }
  // With few heads per query, more warps share conversions that take longer than memory.
  constexpr int few_rows = 8;
  if (!converts_much(problem.spec) || is_wide || problem.spec.gqa_ratio > few_rows) return configs;
  for (const int key_warps : {4, 8}) {
    for (const int tile_kv : {16 * key_warps, 32 * key_warps}) {
      for (const int stages : {2, 3}) {
        for (const int blocks_per_sm : {2, 3, 4}) {
          add({.warp_rows = few_rows,
               .key_warps = key_warps,
               .tile_kv = tile_kv,
               .stages = stages,
               .blocks_per_sm = blocks_per_sm});
        }
      }
    }
  }
  return configs;
}

}  // namespace jit
