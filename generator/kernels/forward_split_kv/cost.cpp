// The cost model of forward_split_kv.
#include <algorithm>
#include <cmath>

#include "generator/kernels/block_cover.h"
#include "generator/kernels/forward_split_kv/family.h"
#include "generator/kernels/split_merge.h"
#include "templates/base/element.cuh"
#include "templates/forward_split_kv/smem_layout.cuh"

namespace jit {
namespace {

using forward_split_kv::Storage;

// Memory bandwidth of an SM per clock while all read. Fitted to decoding at head_dim 128 on an H200
// (docs/kernels/forward_split_kv.md).
constexpr double memory_bytes_per_clock = 19;
constexpr double scarce_bytes = 6144;       // divided by bytes in flight: slowdown of loads
constexpr double crowd_share = 0.02;        // per warp beyond four: all meet in each step
constexpr double step_clocks = 60;          // not hidden by other blocks
constexpr double least_step_clocks = 1400;  // of a block between barriers, in addition to its tile
constexpr double step_bytes_per_clock = 40;
constexpr double launch_clocks = 6000;
constexpr double work_tile_clocks = 1500;  // queries, merging of warps, stores
constexpr double split_clocks = 60;        // per split, in the merging block
constexpr double flops_per_clock = 2700;
// TMA boxes over FP8 caches (docs/records/notebook.md).
constexpr double box_bytes_per_clock = 18.5;
constexpr double scarce_box_bytes =
    17800;                         // the cube of this over the bytes in flight is the slowdown of loads
constexpr double box_clocks = 40;  // per tile
constexpr double enough_box_bytes = 131072;
constexpr double crowded_bytes = 1310720;  // excess bytes in flight divided by this: slowdown
constexpr double box_step_clocks = 900;    // of a warp from tile to tile, in addition to issue
constexpr double issue_share = 1.6;        // factor of issue time over its minimum
constexpr double warps_that_issue = 4;     // concurrently, one per SM sub-partition
// With split_keys one config also serves prefill, which wgmma computes several times faster.
constexpr double prefill_too = 1.7;
// Instructions to convert a stored element to 16 bits: counted, not fitted.
double slots_to(DType number, DType stored) {
  switch (stored) {
    case DType::int4:
      return number == DType::bf16 ? 1.5 : 1.2;
    case DType::nvfp4:
    case DType::mxfp4:
      return 2.2;
    case DType::int8:
      return number == DType::bf16 ? 2 : 1.25;
    default:
      return number == DType::bf16 ? 2 : 0.75;
  }
}
// If conversion is the bottleneck: clocks of a warp between instructions, and instructions of a step besides
// those of its tile (docs/records/notebook.md).
constexpr double clocks_per_instruction = 6.8;
constexpr double step_instructions = 150;
constexpr double copy_instructions = 10;  // per 16-byte cp.async
// Models of other families neglect memory bandwidth, and predict too little for few queries.
// Rows of lists are copied one by one: timed against forward_split_wgmma.
constexpr double copied_by_rows = 2;
constexpr double beside_other_families = 0.75;

}  // namespace

double Family<ForwardSplitKv>::cycles(const Case& problem, const ProblemShape& shape,
                                      const ForwardSplitKv& config) {
  const auto& [spec, limits] = problem;
  const double d = padded_head_dim(spec.head_dim), dv = padded_head_dim(spec.value_head_dim());
  const double tile_rows = config.row_warps * config.warp_rows;
  const double heads_kv = static_cast<double>(shape.heads_q) / spec.gqa_ratio;
  const double row_tiles = std::ceil(static_cast<double>(shape.seqlen_q) * spec.gqa_ratio / tile_rows);
  const double work_tiles = static_cast<double>(shape.batch) * heads_kv * row_tiles;
  const double tiles =
      std::max(1.0, std::ceil(static_cast<double>(keys_to_read(spec, shape)) / config.tile_kv) *
                        block_cover(spec, static_cast<int>(tile_rows) / spec.gqa_ratio, config.tile_kv));

  // One tile of keys of one block. All row tiles of a KV head but the first read keys from L2.
  const Storage kv = storage_of(spec);
  const double key_bytes = (d + dv) * kv.element_bytes / kv.numbers + (kv.has_row_scales ? 8 : 0) +
                           kv.scale_bytes(spec.head_dim) + kv.scale_bytes(spec.value_head_dim());
  const double tile_bytes = config.tile_kv * key_bytes;
  const double blocks = config.blocks_per_sm;
  const double in_flight = tile_bytes * (config.stages - 1) * blocks;
  const int parts = split_column_warps(spec.head_dim, spec.value_head_dim());  // warps with the same scores
  const double warps = config.row_warps * config.key_warps * parts;
  const double share = 1 + scarce_bytes / in_flight + crowd_share * std::max(0.0, warps - 4);
  const double memory =
      tile_bytes / (memory_bytes_per_clock * std::min(row_tiles, 3.0)) * share + step_clocks;
  const double tensor = 2 * tile_rows * config.tile_kv * (parts * d + dv) / flops_per_clock;
  const bool has_value_scales = kv.has_row_scales && !has_fp8_queries(spec);
  const double conversion =
      has_narrow_keys(spec)
          ? config.row_warps * config.tile_kv *
                (parts * d * slots_to(DType::fp16, spec.key_dtype()) +
                 dv * slots_to(has_value_scales ? DType::bf16 : DType::fp16, spec.key_dtype())) /
                32 / 4
          : 0;
  const double softmax = parts * tile_rows * config.tile_kv * 12 / 32 / 4 + conversion;
  double step = std::max({memory * blocks, (tensor + softmax) * blocks,
                          least_step_clocks + tile_bytes / step_bytes_per_clock + tensor + softmax});
  if (config.copies == Copies::tma) {
    const double on_the_way = tile_bytes * config.stages * blocks;
    const double boxes = tile_bytes / (box_bytes_per_clock * std::min(row_tiles, 3.0)) *
                             (1 + std::pow(scarce_box_bytes / on_the_way, 3) +
                              std::max(0.0, on_the_way - enough_box_bytes) / crowded_bytes) +
                         box_clocks;
    const double issue = issue_share * warps_that_issue / std::min(warps, warps_that_issue);
    step =
        std::max({boxes * blocks, (tensor + softmax) * blocks, box_step_clocks + (tensor + softmax) * issue});
  }
  if (converts_much(spec)) {
    const double copies = config.copies == Copies::tma ? 0 : tile_bytes / chunk_bytes * copy_instructions;
    const double instructions =
        softmax * warps_that_issue / warps + copies / (warps * 32) + step_instructions;
    const double latency = clocks_per_instruction * instructions;
    // More blocks overlap loads and conversions better.
    const double overlap = config.copies == Copies::tma ? blocks : warps_that_issue;
    step = std::pow(std::pow(step, overlap) + std::pow(latency, overlap), 1 / overlap);
  }

  const double slots = static_cast<double>(limits.sm_count) * blocks;
  const double own_tiles = std::ceil(work_tiles * tiles / slots);
  const double splits = std::min(tiles, std::ceil(tiles / own_tiles));
  const double rows = std::min(tile_rows, static_cast<double>(shape.seqlen_q) * spec.gqa_ratio);
  const double merge = merge_clocks(spec, rows, splits, split_clocks);
  const double own_work_tiles = std::ceil(own_tiles / tiles);
  double cycles = launch_clocks + own_tiles * step + own_work_tiles * work_tile_clocks + merge;
  const Footprint needs = footprint(spec, config);
  const int spare = needs.register_cap - needs.registers;
  if (spare < 0) cycles *= 1.15 - spare * 0.01;
  if (spec.split_keys != 0) cycles *= prefill_too;
  if (has_lists(spec)) cycles *= copied_by_rows;
  return cycles * beside_other_families;
}

}  // namespace jit
