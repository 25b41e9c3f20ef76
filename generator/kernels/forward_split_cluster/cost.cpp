// The cost model of forward_split_cluster.
#include <algorithm>
#include <cmath>

#include "generator/kernels/block_cover.h"
#include "generator/kernels/forward_split_cluster/family.h"
#include "templates/base/element.cuh"
#include "templates/split_keys/warp_layout.cuh"

namespace jit {
namespace {

// Fitted to timings of 420 configs and shapes on an H200 (docs/records/notebook.md, "Clusters for large
// batches"), in the clocks of the other split-KV families' models, which are fewer than real ones.
constexpr double memory_bytes_per_clock = 31.5;  // per SM while all read
constexpr double alone_bytes_per_clock = 62;     // per SM while few read
constexpr double tile_cost_bytes = 1024;         // divided by tile bytes: slowdown of loads
constexpr double scarce_bytes = 2000;            // divided by bytes in flight: slowdown of loads
constexpr double enough_bytes = 131072;          // in flight
constexpr double crowded_bytes = 8e6;            // excess bytes in flight divided by this: slowdown of loads
constexpr double launch_clocks = 2200;           // including the first load
constexpr double merge_clocks = 100;             // merging warps, then blocks
constexpr double block_clocks = 260;             // per merged block
constexpr double step_clocks = 600;              // per step of a warp whose tile has arrived
constexpr double warp_clocks = 120;              // additionally, per 16 keys at head_dim 128
constexpr double issue_clocks = 30;      // of all warps of an SM, in addition, per 16 keys of one of them
constexpr double fp8_conversion = 1.25;  // slowdown of loads of 8-bit keys
constexpr double overlap = 8;  // norm of what overlaps: loads also wait for a warp that is nearly as slow
constexpr double page_look_up = 110;   // per step of a warp, with pages
constexpr double look_up_alone = 165;  // likewise while few SMs read, whose steps are shorter
constexpr double first_pages = 1500;   // per further wave: its lengths, pages and keys come one after another
constexpr double last_wave = 0.1;      // of a wave: idle SMs in the last one
// Sequences whose lengths are on the device: a long one among short ones keeps its cluster alone, which no other can
// help, and the more keys there is room for, the rarer all are of that length. The square of its clocks over these is
// the price, less in batches that have more requests than `many_requests`. Set by hand, so that families that share all
// keys evenly keep batches with room for 32,768 keys and more (docs/records/notebook.md).
constexpr double many_requests = 32;
constexpr double rare_clocks = 378000;
// GPCs have 16 or 18 SMs, or fewer, and hold whole clusters: an H200 of 132 SMs holds 66 of 2 blocks, 30 of 4, 15 of 8
// and 7 of 16 (cuOccupancyMaxActiveClusters).
constexpr double share_of_clusters = 0.92, share_of_largest = 0.86;

// The number of co-resident clusters.
double resident_clusters(const DeviceLimits& limits, const ForwardSplitCluster& config) {
  const double share = config.cluster <= 2                ? 1
                       : config.cluster < largest_cluster ? share_of_clusters
                                                          : share_of_largest;
  return std::max(1.0, std::floor(share * limits.sm_count * config.blocks_per_sm / config.cluster));
}

}  // namespace

double Family<ForwardSplitCluster>::cycles(const Case& problem, const ProblemShape& shape,
                                           const ForwardSplitCluster& config) {
  const auto& [spec, limits] = problem;
  const double d = padded_head_dim(spec.head_dim), dv = padded_head_dim(spec.value_head_dim());
  const double heads_kv = static_cast<double>(shape.heads_q) / spec.gqa_ratio;
  const double row_tiles = std::ceil(static_cast<double>(shape.seqlen_q) * spec.gqa_ratio / rows_per_warp);
  const double work_tiles = static_cast<double>(shape.batch) * heads_kv * row_tiles;
  const double tiles =
      std::max(1.0, std::ceil(static_cast<double>(shape.seqlen_kv) / config.tile_kv) *
                        block_cover(spec, std::max(1, rows_per_warp / spec.gqa_ratio), config.tile_kv));

  const double clusters = resident_clusters(limits, config);
  const double waves = work_tiles <= clusters ? 1 : work_tiles / clusters + last_wave;
  const double at_once = std::min(work_tiles, clusters) * config.cluster;  // blocks
  const double sms = std::min(at_once, static_cast<double>(limits.sm_count));
  const double blocks = at_once / sms;  // per SM

  const double tile_bytes = config.tile_kv * (d + dv) * size_of(spec.key_dtype());
  const double warps = config.block_warps * blocks;
  const double steps = std::ceil(tiles / (config.cluster * config.block_warps));
  const double shared_rate = memory_bytes_per_clock * limits.sm_count / sms;
  // Clocks in which `warps` warps of an SM load a tile each.
  const auto load_clocks = [&](double fastest, double loading_warps) {
    const double on_the_way = tile_bytes * std::min<double>(config.stages, steps) * loading_warps;
    return tile_bytes * loading_warps / fastest * (1 + tile_cost_bytes / tile_bytes) *
           (1 + scarce_bytes / on_the_way + std::max(0.0, on_the_way - enough_bytes) / crowded_bytes);
  };
  const double conversion = has_narrow_keys(spec) ? fp8_conversion : 1;
  const bool has_pages = spec.sequences_kv == SequenceKind::paged;
  const double of_pages = shared_rate > alone_bytes_per_clock ? look_up_alone : page_look_up;
  const double look_up = has_pages ? of_pages : 0;
  const double products = config.tile_kv / 16 * (d + dv) / 256;
  const double loads = conversion * load_clocks(std::min(alone_bytes_per_clock, shared_rate), warps),
               issue = issue_clocks * products * warps;
  const double chain = step_clocks + warp_clocks * products;
  const double step =
      std::pow(std::pow(loads, overlap) + std::pow(issue, overlap) + std::pow(chain, overlap), 1 / overlap) +
      look_up;
  const double merge =
      merge_clocks + config.cluster * block_clocks + (has_pages ? first_pages * (1 - 1 / waves) : 0);
  double waits = 1;
  if (shape.has_device_lengths && shape.batch > 1) {
    const double alone = conversion * load_clocks(alone_bytes_per_clock, config.block_warps);
    const double longest = steps * (std::max(alone, chain) + look_up) / rare_clocks;
    waits += longest * longest * std::min(1.0, many_requests / static_cast<double>(shape.batch));
  }
  double cycles = launch_clocks + waits * waves * (steps * step + merge);
  const Footprint needs = footprint(spec, config);
  const int spare = needs.register_cap - needs.registers;
  if (spare < 0) cycles *= 1.15 - spare * 0.01;
  return cycles;
}

}  // namespace jit
