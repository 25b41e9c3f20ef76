// The cost model of forward_mla_wgmma.
#include <algorithm>
#include <cmath>

#include "generator/kernels/block_cover.h"
#include "generator/kernels/forward_mla_wgmma/family.h"
#include "generator/kernels/split_merge.h"
#include "templates/base/element.cuh"
#include "templates/forward_mla_wgmma/smem_layout.cuh"

namespace jit {

using namespace forward_mla_wgmma;

namespace {

// Clocks and rates of an SM, as in forward_split_wgmma. A wgmma of N columns takes N / 2 clocks.
constexpr double memory_bytes_per_clock = 18.5;
constexpr double l2_bytes_per_clock = 45;
// Clocks to copy a row by cp.async, by one of several warps.
constexpr double row_copy_clocks = 40;
constexpr double tensor_share = 0.75;  // highest share of the tensor cores' rate
// Exposed latency of loads, and softmax of a tile: a stage is loaded, then multiplied twice.
constexpr double latency_clocks = 1500, softmax_clocks = 700;
constexpr double launch_clocks = 6000;
constexpr double work_tile_clocks = 3500;
constexpr double split_clocks = 200;  // per split, in the merging block
// As in forward_split_wgmma: models of other families neglect the memory bandwidth.
constexpr double beside_other_families = 0.7;

}  // namespace

double Family<ForwardMlaWgmma>::cycles(const Case& problem, const ProblemShape& shape,
                                       const ForwardMlaWgmma& config) {
  const auto& [spec, limits] = problem;
  const int d = padded_head_dim(spec.head_dim), dv = spec.value_head_dim();
  const double heads_kv = static_cast<double>(shape.heads_q) / spec.gqa_ratio;
  const double row_tiles =
      std::ceil(static_cast<double>(shape.seqlen_q) * spec.gqa_ratio / rows_per_warpgroup);
  const double work_tiles = static_cast<double>(shape.batch) * heads_kv * row_tiles;
  const double tiles = std::max(1.0, std::ceil(static_cast<double>(shape.seqlen_kv) / tile_kv) *
                                         block_cover(spec, rows_per_warpgroup / spec.gqa_ratio, tile_kv));

  // One tile of keys, of which a block of a pair reads half. All row tiles of a KV head but the first read keys from L2.
  const double tile_bytes = static_cast<double>(tile_kv) * d * element_bytes / (config.pair ? 2 : 1);
  const double memory =
      tile_bytes / memory_bytes_per_clock / row_tiles + tile_bytes / l2_bytes_per_clock * (1 - 1 / row_tiles);
  const double copy =
      config.copies == Copies::cp_async
          ? row_copy_clocks * tile_kv / row_copy_warps / (config.pair ? 2 : 1) + latency_clocks / 2
          : 0;
  const double scores = tile_kv / 2.0 * d / 16, outputs = tile_kv / 16.0 * dv / 2;
  const double round =
      (tile_bytes / l2_bytes_per_clock + latency_clocks + scores + softmax_clocks + outputs) / config.stages;
  const double step = std::max({memory, copy, (scores + outputs) / tensor_share, round});

  const double slots = limits.sm_count;
  const double own_tiles = std::ceil(work_tiles * tiles / slots);
  const double splits = std::min(tiles, std::ceil(tiles / own_tiles));
  const double own_work_tiles = std::ceil(own_tiles / tiles);
  const double rows =
      std::min<double>(rows_per_warpgroup, static_cast<double>(shape.seqlen_q) * spec.gqa_ratio);
  const double merge = merge_clocks(spec, rows, splits, split_clocks);
  return (launch_clocks + own_tiles * step + own_work_tiles * work_tile_clocks + merge) *
         beside_other_families;
}

}  // namespace jit
