#include <algorithm>

#include <fmt/format.h>
#include <jit/dtype.h>

#include "generator/functors/functor_node.h"
#include "generator/kernels/forward_mma_sync/family.h"
#include "templates/base/element.cuh"
#include "templates/forward_mma_sync/smem_layout.cuh"

namespace jit {
namespace {

constexpr int rows_per_mma = 16;
// Registers of loop counters and addresses, of softmax state and fragments per 16 rows, and of masks and
// scores, calibrated with ptxas.
constexpr int other_registers = 24;
constexpr int row_block_registers = 16;
constexpr int functor_registers = 8;
constexpr int largest_score_registers = 2;  // per 16 rows
constexpr int span_registers = 4;
// Registers to transpose bytes of V, and for scales of queries.
constexpr int fp8_registers = 8;
// The largest promising excess of the estimate over the cap: a few spilled bytes may be fast.
constexpr int spill_allowance = 40;

constexpr std::array rows = {
    field<&ForwardMmaSync::tile_q>("tile_q", "queries per block", {multiples(16, 256), Affects::tiling, 64}),
    field<&ForwardMmaSync::tile_kv>("tile_kv", "keys per step", {multiples(16, 256), Affects::tiling, 32}),
    field<&ForwardMmaSync::warps>("warps", "warps per block; each owns tile_q / warps queries",
                                  {range(1, 16), Affects::tiling, 8}),
    field<&ForwardMmaSync::stages_k>("stages_k", "buffers for K tiles", {range(1, 4), Affects::buffers, 1}),
    field<&ForwardMmaSync::stages_v>("stages_v", "buffers for V tiles", {range(1, 4), Affects::buffers, 2}),
    field<&ForwardMmaSync::q_in_registers>("q_in_registers", "Q stays in registers, else in shared memory",
                                           {}),
    field<&ForwardMmaSync::rescale>("rescale", "when the output is rescaled to a new row maximum",
                                    {.sample = static_cast<int>(Rescale::always)}),
    field<&ForwardMmaSync::blocks_per_sm>("blocks_per_sm",
                                          "blocks that must fit on a multiprocessor: caps the registers",
                                          {range(1, 8), Affects::registers, 2}),
};
static_assert(rows.size() == member_count<ForwardMmaSync>(), "each member has a row");

// Registers by which estimates below the cap were seen to spill: more with large tiles of keys, with
// functors, which have per-row terms, and with long rows of 8-bit V upcast to fp16.
int register_doubt(const AttentionSpec& spec, const ForwardMmaSync& config) {
  const int functors = functor_count(spec.mask) + functor_count(spec.score);
  const int row_blocks = config.tile_q / config.warps / rows_per_mma;
  const int upcast = has_fp8_queries(spec) && spec.value_head_dim() > 128 ? 24 : 0;
  return 12 + config.tile_kv / 8 + 4 * functors * row_blocks + upcast;
}

// Split-KV families compute these calls faster, but have no dropout: their tiles have rows of several heads,
// without random numbers of their own. With split_keys, blocks of this family store each span's results.
std::string sequences_rejection(const AttentionSpec& spec) {
  const bool has_pages = spec.sequences_kv == SequenceKind::paged;
  if (is_plain(spec) || spec.dropout || (spec.split_keys != 0 && !has_pages)) return "";
  return fmt::format(
      "{} reads dense sequences without sinks, and others with dropout or split_keys alone, not pages; "
      "sequences_q = {}, sequences_kv = {}, sinks = {}, split_keys = {}",
      Family<ForwardMmaSync>::name, to_string(spec.sequences_q), to_string(spec.sequences_kv), spec.sinks,
      spec.split_keys);
}

int smem_bytes(const AttentionSpec& spec, const ForwardMmaSync& config) {
  return forward_mma_sync::smem_layout({.head_dim = spec.head_dim,
                                        .head_dim_v = spec.value_head_dim(),
                                        .tile_q = config.tile_q,
                                        .tile_kv = config.tile_kv,
                                        .stages_k = config.stages_k,
                                        .stages_v = config.stages_v,
                                        .q_in_registers = config.q_in_registers,
                                        .element_bytes = size_of(spec.dtype),
                                        .key_scales = spec.descale_per != ScaleKind::head})
      .total;
}

}  // namespace

std::span<const ConfigField<ForwardMmaSync>> Family<ForwardMmaSync>::fields() { return rows; }

std::string Family<ForwardMmaSync>::rejection(const Case& problem, const ForwardMmaSync& config) {
  const AttentionSpec& spec = problem.spec;
  if (!has_fp8_queries(spec)) {
    if (std::string reason = kv_dtype_rejection(spec, name); !reason.empty()) return reason;
  }
  if (std::string reason = wide_output_rejection(spec, name); !reason.empty()) return reason;
  if (std::string reason = sequences_rejection(spec); !reason.empty()) return reason;
  const int mma_k = facts(spec.dtype).mma_k;
  if (config.tile_kv % mma_k != 0)
    return fmt::format("tile_kv = {} must be a multiple of {} with fp8", config.tile_kv, mma_k);
  if (config.rescale == Rescale::on_overflow)
    return fmt::format("rescale = on_overflow is not known to {}; it must be always or lazy", name);
  if (config.tile_q % (rows_per_mma * config.warps) != 0) {
    return fmt::format("tile_q = {} must be a multiple of 16 · warps = {}", config.tile_q,
                       rows_per_mma * config.warps);
  }
  if (std::string reason = dropout_tile_rejection(spec, config.tile_kv); !reason.empty()) return reason;
  if (spec.split_keys != 0 && config.rescale != Rescale::lazy) {
    return fmt::format(
        "rescale must be lazy with split_keys = {}: rows decide by themselves, as in other families",
        spec.split_keys);
  }
  return lone_block_rejection(spec, problem.limits.arch, config.tile_kv, name);
}

Footprint Family<ForwardMmaSync>::footprint(const AttentionSpec& spec, const ForwardMmaSync& config) {
  const int row_blocks = config.tile_q / config.warps / rows_per_mma;
  const int parts = column_warps(spec.head_dim, spec.value_head_dim());
  const int output = row_blocks * warp_columns(spec.value_head_dim(), parts) / 8 * 4;
  const int scores = row_blocks * config.tile_kv / 8 * 4;
  const int mma_k = facts(spec.dtype).mma_k;
  const int q_steps = config.q_in_registers ? padded_head_dim(spec.head_dim, mma_k) / mma_k : 1;
  const int q = row_blocks * q_steps * 4;
  const bool has_functors = spec.mask != Mask() || spec.score != Score();
  const int threads = config.warps * parts * 32;
  const int share = registers_per_sm / (threads * config.blocks_per_sm);
  return {.threads = threads,
          .smem_bytes = smem_bytes(spec, config),
          .registers = output + scores + q + other_registers + row_blocks * row_block_registers +
                       (has_functors ? functor_registers : 0) +
                       (asks_for(spec, largest_scores) ? row_blocks * largest_score_registers : 0) +
                       (spec.mean_score ? row_blocks * largest_score_registers : 0) +
                       (spec.split_keys != 0 ? span_registers : 0) +
                       (has_narrow_keys(spec) ? fp8_registers : 0) + dropout_registers(spec, scores),
          .register_cap = std::min(max_registers_per_thread, share / 8 * 8),
          .blocks_per_sm = config.blocks_per_sm,
          .register_slack = spill_allowance,
          .register_doubt = register_doubt(spec, config)};
}

std::vector<ForwardMmaSync> Family<ForwardMmaSync>::space(const Case& problem) {
  struct Stages {
    int k, v;
  };
  std::vector<ForwardMmaSync> configs;
  if (!sequences_rejection(problem.spec).empty()) return configs;
  // Shared memory has room for few rows of more columns than that.
  const bool is_wide = column_warps(problem.spec.head_dim, problem.spec.value_head_dim()) > 1;
  const std::vector<int> warp_counts = is_wide ? std::vector{2, 4} : std::vector{4, 8};
  const bool has_spans = problem.spec.split_keys != 0;
  const std::vector<int> key_counts = has_spans
                                          ? std::vector{fixed_bits_tile(problem.spec, problem.limits.arch)}
                                      : is_wide ? std::vector{16, 32, 64}
                                                : std::vector{32, 48, 64, 96, 128};
  const std::vector<Rescale> rescales =
      has_spans ? std::vector{Rescale::lazy} : std::vector{Rescale::lazy, Rescale::always};
  for (const int warps : warp_counts) {
    for (const int warp_rows : {16, 32}) {
      if (warps * warp_rows > 128) continue;  // always at least 7 % slower than the fastest measured
      for (const int tile_kv : key_counts) {
        for (const Stages stages : {Stages{1, 1}, {2, 1}, {2, 2}, {3, 2}, {3, 3}, {4, 4}, {1, 2}}) {
          for (const bool q_in_registers : {false, true}) {
            for (const Rescale rescale : rescales) {
              for (const int blocks_per_sm : {1, 2, 3, 4}) {
                configs.push_back({.tile_q = warps * warp_rows,
                                   .tile_kv = tile_kv,
                                   .warps = warps,
                                   .stages_k = stages.k,
                                   .stages_v = stages.v,
                                   .q_in_registers = q_in_registers,
                                   .rescale = rescale,
                                   .blocks_per_sm = blocks_per_sm});
              }
            }
          }
        }
      }
    }
  }
  return configs;
}

}  // namespace jit
