// The cost model of forward_split_wgmma.
#include <algorithm>
#include <cmath>

#include "generator/functors/score_mask.h"
#include "generator/kernels/block_cover.h"
#include "generator/kernels/converted_scales.h"
#include "generator/kernels/forward_split_wgmma/family.h"
#include "generator/kernels/split_merge.h"
#include "generator/kernels/tma_rules.h"
#include "templates/base/element.cuh"
#include "templates/tiles/panel_tile.cuh"

namespace jit {

using namespace forward_split_wgmma;

namespace {

// Clocks and rates of an SM, set by hand from timings of decoding and prefill at head_dim 128 on an H200. A
// wgmma of N columns takes N / 2 clocks.
constexpr double memory_bytes_per_clock = 18.5;
constexpr double l2_bytes_per_clock = 45;
constexpr double scarce_bytes = 17800;   // the cube of this over the bytes in flight is the slowdown of loads
constexpr double enough_bytes = 131072;  // in flight
constexpr double crowded_bytes = 1310720;  // excess bytes in flight divided by this: slowdown
constexpr double page_clocks = 40;         // per tile with page lookup
constexpr double step_clocks = 700;        // of a consumer, in addition to products and exponentials
constexpr double softmax_per_key = 5.8;    // of a consumer, per key of a tile
constexpr double tensor_share = 0.9;       // highest share of the tensor cores' rate
constexpr double prefill_share = 0.66;     // likewise, with many queries
constexpr double masked_clocks = 1500;     // per work tile of many queries, for its partial tiles
constexpr double box_clocks = 110;         // to issue the copy of a box panel
constexpr double launch_clocks = 6000;
constexpr double work_tile_clocks = 2500;
constexpr double waiting_for_queries = 800;  // with one buffer of queries
constexpr double split_clocks = 60;          // per split, in the merging block
constexpr double single_stage = 1.25;
// Models of other families neglect memory bandwidth, and predict too little for few queries.
constexpr double beside_other_families = 0.7;
// The model of forward_wgmma predicts too much for many queries under a mask.
constexpr double beside_forward_wgmma = 1.2;
// Few queries over keys whose scales converters apply: 64 queries of 8,192 FP8 keys took 1.46 times the prediction, those
// of forward_split_kv over 4 bits what its model says.
constexpr double beside_exact_products = 1.5;

// Lookup of list tiles: set by hand between timings of 64 and 128 keys.
constexpr double listed_clocks = 440;
// Bandwidth of an SM if at least `listed_often` work tiles list the same keys.
constexpr double listed_bytes_per_clock = 31, listed_often = 1024;

// Factor for many queries with 8-bit keys: measured as 1.6 times forward_wgmma's time for 16 bits.
constexpr double stored_prefill = 1.2;

// Converter instructions to upcast an 8-bit element: counted, not fitted.
constexpr double slots_to(DType dtype) { return dtype == DType::bf16 ? 1.3 : 0.5; }
// And for one that is multiplied by a scale, of 4 bits or 8 alike.
constexpr double scaled_slots = 4.7;
// Latency of a tile of few queries between the two pipelines, timed at head_dim 128 with bf16.
constexpr double stored_clocks = 900;
constexpr double stored_per_element = 0.11;

// Tiles of keys that a tile of rows sees, out of `tiles`. Treats every mask as causal, for lack of a better
// estimate.
double seen_tiles(const AttentionSpec& spec, const ProblemShape& shape, double tiles) {
  if (!drops_keys(spec) || shape.seqlen_kv == 0) return tiles;
  const double queries = static_cast<double>(shape.seqlen_q), keys = static_cast<double>(shape.seqlen_kv);
  const double share = queries <= keys ? 1 - queries / (2 * keys) : keys / (2 * queries);
  return std::min(tiles, tiles * share + 0.5);
}

// Clocks to issue the copies of a tile of keys.
double boxes_step(const AttentionSpec& spec, const ForwardSplitWgmma& config) {
  const double boxes = config.tile_kv / box_rows(spec, config.tile_kv);
  const int bytes = size_of(spec.key_dtype());
  return boxes *
         (panel_count(stored_columns(spec, spec.head_dim), bytes) +
          panel_count(stored_columns(spec, spec.value_head_dim()), bytes)) *
         box_clocks;
}

}  // namespace

double Family<ForwardSplitWgmma>::cycles(const Case& problem, const ProblemShape& shape,
                                         const ForwardSplitWgmma& config) {
  const auto& [spec, limits] = problem;
  const double d = padded_head_dim(spec.head_dim), dv = padded_head_dim(spec.value_head_dim());
  const double heads_kv = static_cast<double>(shape.heads_q) / spec.gqa_ratio;
  const double row_tiles = std::ceil(static_cast<double>(shape.seqlen_q) * spec.gqa_ratio / config.tile_rows);
  const double work_tiles = static_cast<double>(shape.batch) * heads_kv * row_tiles;
  const double tiles =
      std::max(1.0, std::ceil(static_cast<double>(keys_to_read(spec, shape)) / config.tile_kv) *
                        block_cover(spec, config.tile_rows / spec.gqa_ratio, config.tile_kv));

  // One tile of keys. All row tiles of a KV head but the first read keys from L2.
  const double blocks = config.blocks_per_sm;
  const bool is_stored = has_narrow_keys(spec);
  const double tile_bytes =
      config.tile_kv * (d + dv) * size_of(spec.key_dtype()) / facts(spec.key_dtype()).numbers;
  const double on_the_way = tile_bytes * (is_stored ? config.stages_stored : config.stages) * blocks;
  const bool are_read_often = has_lists(spec) && work_tiles >= listed_often;
  const double memory = are_read_often
                            ? tile_bytes / listed_bytes_per_clock
                            : tile_bytes / memory_bytes_per_clock / row_tiles *
                                      (1 + std::pow(scarce_bytes / std::min(enough_bytes, on_the_way), 3) +
                                       std::max(0.0, on_the_way - enough_bytes) / crowded_bytes) +
                                  tile_bytes / l2_bytes_per_clock * (1 - 1 / row_tiles) +
                                  (spec.sequences_kv == SequenceKind::paged ? page_clocks : 0);
  const double products = config.tile_kv / 2.0 * (d + dv) / 16;
  const double consumers = consumers_of(config) * blocks;
  const double alone = products + softmax_per_key * config.tile_kv + step_clocks;
  const double conversion =
      has_converted_scales(spec) ? config.tile_kv * (d + dv) * scaled_slots / 32 / 4
      : is_stored ? config.tile_kv * (d * slots_to(spec.dtype) + dv * slots_to(DType::fp16)) / 32 / 4
                  : 0;
  double step = std::max({memory * blocks, products * consumers / tensor_share, alone, conversion * blocks,
                          boxes_step(spec, config)});
  const bool is_prefill = shape.seqlen_q > few_queries;
  if (is_prefill) step = std::max(step, products * consumers / prefill_share);
  if (is_stored && !is_prefill)
    step = std::max(step, stored_clocks + stored_per_element * config.tile_kv * (d + dv));
  if (config.stages == 1) step *= single_stage;
  if (is_stored && config.stages_stored == 1) step *= single_stage;

  if (has_lists(spec)) step += listed_clocks;

  const double slots = static_cast<double>(limits.sm_count) * blocks;
  const double seen = is_prefill ? seen_tiles(spec, shape, tiles) : tiles;
  const double own_tiles = std::ceil(work_tiles * seen / slots);
  const double splits = std::min(seen, std::ceil(seen / own_tiles));
  const double rows =
      std::min<double>(config.tile_rows, static_cast<double>(shape.seqlen_q) * spec.gqa_ratio);
  const double merge = merge_clocks(spec, rows, splits, split_clocks);
  const double own_work_tiles = std::ceil(own_tiles / seen);
  const double work_tile = work_tile_clocks + (config.stages_q > 1 ? 0 : waiting_for_queries) +
                           (is_prefill && drops_keys(spec) ? masked_clocks : 0);
  const bool is_alone = config.requests == Requests::all;
  const double beside = (!is_prefill && is_alone && has_converted_scales(spec) ? beside_exact_products : 1) *
                        (!is_prefill        ? beside_other_families
                         : drops_keys(spec) ? beside_forward_wgmma
                                            : 1) *
                        (is_prefill && is_stored ? stored_prefill : 1);
  return (launch_clocks + own_tiles * step + own_work_tiles * work_tile + merge) * beside;
}

}  // namespace jit
