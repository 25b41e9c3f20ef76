// The fields of forward_split_wgmma, rules and search grid.
#include <array>

#include <fmt/format.h>
#include <jit/dtype.h>

#include "generator/functors/functor_node.h"
#include "generator/kernels/converted_scales.h"
#include "generator/kernels/forward_split_wgmma/family.h"
#include "generator/kernels/split_wgmma.h"
#include "generator/kernels/tma_rules.h"
#include "templates/base/element.cuh"
#include "templates/forward_split_wgmma/smem_layout.cuh"

namespace jit {

using namespace forward_split_wgmma;

namespace {

constexpr int max_consumers = 2;
// Registers of loop counters, descriptors and softmax state; of masks and scores. Calibrated with ptxas.
constexpr int other_registers = 34;
constexpr int functor_registers = 8;
constexpr int largest_score_registers = 2;
constexpr int mean_score_registers = 4;
// Registers of the converter warpgroup, and of scales in other warpgroups.
constexpr int converter_registers = 40;
constexpr int scale_registers = 4;
// Registers of the producer. That of pages spills 24 to 44 bytes of 56 registers where it holds bounds of joined masks, or of
// requests that it leaves out, and 24 where it copies scales; that of pieces of sequences, which finds where keys stand, 148.
constexpr int producer_registers = 56;
constexpr int joined_producer_registers = 64;
constexpr int placed_producer_registers = 72;
constexpr int listed_producer_registers = 72;

constexpr std::array rows = {
    field<&ForwardSplitWgmma::tile_rows>(
        "tile_rows", "rows per block: queries of all heads that share a KV head",
        {multiples(rows_per_warpgroup, rows_per_warpgroup* max_consumers), Affects::tiling, 64}),
    field<&ForwardSplitWgmma::tile_kv>("tile_kv", "keys per step", {multiples(16, 256), Affects::tiling, 64}),
    field<&ForwardSplitWgmma::stages_q>("stages_q", "buffers for tiles of queries",
                                        {range(1, 2), Affects::buffers, 2}),
    field<&ForwardSplitWgmma::stages>("stages", "buffers for tiles of keys, and as many for values",
                                      {range(1, 8), Affects::buffers, 1}),
    field<&ForwardSplitWgmma::blocks_per_sm>("blocks_per_sm",
                                             "blocks that must fit on a multiprocessor: caps the registers",
                                             {range(1, 4), Affects::registers, 2}),
    field<&ForwardSplitWgmma::requests>(
        "requests", "the requests of this kernel, by their number of queries",
        {.affects = Affects::registers, .sample = static_cast<int>(Requests::few_queries)}),
    field<&ForwardSplitWgmma::stages_stored>(
        "stages_stored", "buffers for tiles of 8-bit keys as they are stored, and as many for values",
        {range(0, 8), Affects::buffers, 2}),
};
static_assert(rows.size() == member_count<ForwardSplitWgmma>(), "each member has a row");

// Whether keys and values are converted: then they have buffers for stored tiles.
bool converts(const ForwardSplitWgmma& config) { return config.stages_stored > 0; }

int threads_of(const ForwardSplitWgmma& config) {
  return warpgroup_threads(consumers_of(config) + (converts(config) ? 2 : 1));
}

// Why the buffers do not match the storage type of k and v; empty if they do.
std::string storage_rejection(const AttentionSpec& spec, const ForwardSplitWgmma& config) {
  constexpr std::string_view name = Family<ForwardSplitWgmma>::name;
  if (!has_narrow_keys(spec)) {
    return converts(config) ? fmt::format("stages_stored = {} must be 0 with k and v of {}",
                                          config.stages_stored, to_string(spec.key_dtype()))
                            : "";
  }
  if (std::string reason = converted_scales_rejection(spec, name); !reason.empty()) return reason;
  if (!converts(config)) {
    return fmt::format("stages_stored must be 1 or more with k and v of {}: they are converted",
                       to_string(spec.key_dtype()));
  }
  const int begun_with = launched_registers(threads_of(config), config.blocks_per_sm);
  if (const int scores = config.tile_kv / 2; scores + instruction_registers > begun_with) {
    return fmt::format(
        "tile_kv = {} with blocks_per_sm = {}: an instruction takes {} registers for scores and about {} "
        "more, "
        "but a thread begins with {}",
        config.tile_kv, config.blocks_per_sm, scores, instruction_registers, begun_with);
  }
  return "";
}

}  // namespace

namespace forward_split_wgmma {

int consumers_of(const ForwardSplitWgmma& config) { return config.tile_rows / rows_per_warpgroup; }

RegisterShares register_shares(const AttentionSpec& spec, const ForwardSplitWgmma& config) {
  const int consumers = consumers_of(config);
  // With 56 for the producer, consumers of several blocks with converters would have too few registers.
  const bool has_scales = has_converted_scales(spec);
  const bool holds_more = functor_count(spec.mask) > 1 || config.requests != Requests::all || has_scales;
  const int producer = spec.q_positions || spec.k_positions ? placed_producer_registers
                       : (spec.sequences_kv == SequenceKind::paged || has_scales) && holds_more
                           ? joined_producer_registers
                           : producer_registers;
  if (converts(config)) {
    return shared_registers(consumers, config.blocks_per_sm,
                            config.blocks_per_sm > 1 && !has_scales ? 48 : producer, converter_registers);
  }
  // A list's tiles come one after another; two blocks side by side are what hides their latency.
  const bool is_alone = consumers == 1 && !(has_lists(spec) && config.blocks_per_sm > 1);
  if (is_alone) return {};
  return shared_registers(consumers, config.blocks_per_sm,
                          consumers == 1 ? listed_producer_registers : producer);
}

}  // namespace forward_split_wgmma

std::span<const ConfigField<ForwardSplitWgmma>> Family<ForwardSplitWgmma>::fields() { return rows; }

ForwardSplitWgmma Family<ForwardSplitWgmma>::smallest_for(const AttentionSpec& spec) {
  ForwardSplitWgmma config = smallest;
  if (has_narrow_keys(spec)) config.stages_stored = 1;
  return config;
}

bool Family<ForwardSplitWgmma>::suits(const ProblemShape& shape) {
  return shape.tma && (shape.has_device_lengths || shape.seqlen_q <= few_queries);
}

std::string Family<ForwardSplitWgmma>::rejection(const Case& problem, const ForwardSplitWgmma& config) {
  const auto& [spec, limits] = problem;
  if (has_fp8_queries(spec)) return kv_dtype_rejection(spec, name);
  if (std::string reason = storage_rejection(spec, config); !reason.empty()) return reason;
  if (std::string reason = wide_output_rejection(spec, name); !reason.empty()) return reason;
  if (std::string reason = dropout_rejection(spec, name); !reason.empty()) return reason;
  if (std::string reason = tma_rejection(problem, name); !reason.empty()) return reason;
  if (has_lists(spec) && spec.list_block % config.tile_kv != 0) {
    return fmt::format("tile_kv = {} must divide list_block = {}: a tile of keys is of one entry of a list",
                       config.tile_kv, spec.list_block);
  }
  if (config.requests != Requests::all) {
    if (config.requests != part)
      return fmt::format("requests must be all or few_queries with family={}", name);
    if (config.blocks_per_sm != 1)
      return "blocks_per_sm must be 1 with requests = few_queries: some of the multiprocessors have a block "
             "each while another kernel has the others";
    if (spec.sequences_q != SequenceKind::varlen || spec.split_keys != 0)
      return "requests must be all where queries are not varlen, and with split_keys: one kernel computes a "
             "call";
  }
  if (std::string reason = box_rejection(spec, config.tile_kv, false); !reason.empty()) return reason;
  return span_rejection(spec, limits.arch, config.tile_kv);
}

Footprint Family<ForwardSplitWgmma>::footprint(const AttentionSpec& spec, const ForwardSplitWgmma& config) {
  const RegisterShares shares = register_shares(spec, config);
  const int scores = config.tile_kv / 2, p = config.tile_kv / 4;
  const int output = padded_head_dim(spec.value_head_dim()) / 2;
  const int functors = functor_count(spec.mask) + functor_count(spec.score);
  return {.threads = threads_of(config),
          .smem_bytes = smem_layout({.head_dim = spec.head_dim,
                                     .head_dim_v = spec.value_head_dim(),
                                     .tile_rows = config.tile_rows,
                                     .tile_kv = config.tile_kv,
                                     .stages_q = config.stages_q,
                                     .stages = config.stages,
                                     .stages_stored = config.stages_stored,
                                     .has_spans = spec.split_keys != 0,
                                     .has_lists = has_lists(spec),
                                     .numbers = facts(spec.key_dtype()).numbers,
                                     .k_scale_bytes = converted_scale_bytes(spec, spec.head_dim),
                                     .v_scale_bytes = converted_scale_bytes(spec, spec.value_head_dim())})
                            .total,
          .registers = scores + p + output + other_registers + functors * functor_registers +
                       (asks_for(spec, largest_scores) ? largest_score_registers : 0) +
                       (spec.mean_score ? mean_score_registers : 0) +
                       (converts(config) ? scale_registers : 0),
          .register_cap = shares.consumer != 0 ? shares.consumer
                                               : launched_registers(threads_of(config), config.blocks_per_sm),
          .blocks_per_sm = config.blocks_per_sm,
          .register_slack = 0,
          .register_doubt =
              shares.producer == joined_producer_registers ? 6 : 8};  // seen clean 6 below the cap of 216
}

std::vector<ForwardSplitWgmma> Family<ForwardSplitWgmma>::space(const Case& problem) {
  std::vector<ForwardSplitWgmma> configs;
  const bool is_stored = has_narrow_keys(problem.spec);
  const std::vector<int> tiles =
      is_stored ? std::vector{32, 48, 64, 80, 96, 112, 128} : std::vector{32, 64, 80, 96, 112, 128, 160, 176};
  const std::vector<int> buffers = is_stored ? std::vector{1, 2} : std::vector{1, 2, 3, 4, 6};
  const std::vector<int> stored_buffers = is_stored ? std::vector{1, 2, 3, 4, 6} : std::vector{0};
  for (const int consumers : {1, 2}) {
    for (const int tile_kv : tiles) {
      for (const int stages_q : {1, 2}) {
        for (const int stages : buffers) {
          for (const int stages_stored : stored_buffers) {
            for (const int blocks_per_sm : {1, 2}) {
              if (consumers * blocks_per_sm > 2) continue;
              configs.push_back({.tile_rows = consumers * rows_per_warpgroup,
                                 .tile_kv = tile_kv,
                                 .stages_q = stages_q,
                                 .stages = stages,
                                 .blocks_per_sm = blocks_per_sm,
                                 .stages_stored = stages_stored});
            }
          }
        }
      }
    }
  }
  return configs;
}

}  // namespace jit
