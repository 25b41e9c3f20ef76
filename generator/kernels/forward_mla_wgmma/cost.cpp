// The cost model of forward_mla_wgmma.
#include <algorithm>
#include <cmath>

#include "generator/kernels/block_cover.h"
#include "generator/kernels/forward_mla_wgmma/family.h"
#include "generator/kernels/split_merge.h"
#include "templates/base/element.cuh"
#include "templates/tiles/panel_tile.cuh"

namespace jit {

namespace {

// Constants of one multiprocessor, in clocks. A wgmma of N columns takes N / 2. As in forward_split_wgmma,
// but for what was set beside timings of this kernel on an H200 (docs/records/notebook.md).
constexpr double memory_bytes_per_clock = 18.5;
constexpr double l2_bytes_per_clock = 45;
constexpr double scarce_bytes = 17800;  // by the cube of this over the bytes on the way reading takes longer
constexpr double latency_clocks =
    5000;  // of a load that nothing covers, from the stage's release to its arrival
// Clocks of a row that one of several warps copies by cp.async, 17 instructions.
constexpr double row_copy_clocks = 40;
constexpr int row_copy_warps = 2;
constexpr double step_clocks = 700;      // of a consumer, beside products and exponentials
constexpr double softmax_per_key = 5.8;  // of a consumer, for each key of a tile
constexpr double tensor_share = 0.9;     // of their rate, that the tensor cores reach at best
constexpr double narrow_products = 1.5;  // longer, of fewer keys than the rows that they are multiplied with
constexpr double launch_clocks = 6000;
constexpr double work_tile_clocks = 3500;
constexpr double split_clocks = 200;  // that the block that merges a work tile needs for each split
// As forward_split_wgmma has it: models of other families do not know what memory can bring.
constexpr double beside_other_families = 0.7;

// Clocks of the warps that copy a tile row by row: two tiles are on their way at once where a third is being
// multiplied, and begin the sooner the more stages there are beside these.
double row_copies_clocks(const ForwardMlaWgmma& config) {
  const double issuing = row_copy_clocks * config.tile_kv / row_copy_warps;
  return std::max(issuing, (latency_clocks + issuing) / std::min(3, config.stages - 1));
}

}  // namespace

double Family<ForwardMlaWgmma>::cycles(const Case& problem, const ProblemShape& shape,
                                       const ForwardMlaWgmma& config) {
  const auto& [spec, limits] = problem;
  const double d = padded_head_dim(spec.head_dim), dv = spec.value_head_dim();
  const double heads_kv = static_cast<double>(shape.heads_q) / spec.gqa_ratio;
  const double row_tiles =
      std::ceil(static_cast<double>(shape.seqlen_q) * spec.gqa_ratio / rows_per_warpgroup);
  const double work_tiles = static_cast<double>(shape.batch) * heads_kv * row_tiles;
  const double tiles =
      std::max(1.0, std::ceil(static_cast<double>(shape.seqlen_kv) / config.tile_kv) *
                        block_cover(spec, rows_per_warpgroup / spec.gqa_ratio, config.tile_kv));

  // One tile of keys. Tiles of rows of one KV head find their keys in L2, but for the first.
  const double tile_bytes = config.tile_kv * d * element_bytes;
  const double in_flight = tile_bytes * (config.stages - 1);  // while one tile is multiplied
  const double memory =
      tile_bytes / memory_bytes_per_clock / row_tiles * (1 + std::pow(scarce_bytes / in_flight, 3)) +
      tile_bytes / l2_bytes_per_clock * (1 - 1 / row_tiles);
  const double copy = config.copies == Copies::cp_async ? row_copies_clocks(config) : 0;
  const double scores =
      config.tile_kv / 2.0 * d / 16 * (config.tile_kv < rows_per_warpgroup ? narrow_products : 1);
  const double outputs = config.tile_kv / 16.0 * dv / 2;
  const double alone = scores + outputs + softmax_per_key * config.tile_kv + step_clocks;
  // A stage is loaded, and then both consumers are done with it.
  const double round = (tile_bytes / l2_bytes_per_clock + latency_clocks + alone) / config.stages;
  const double step = std::max({memory, copy, (scores + outputs) / tensor_share, alone / 2, round});

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
