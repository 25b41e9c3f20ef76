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
constexpr double fp8_conversion = 1.15;  // slowdown of loads of 8-bit keys
constexpr double overlap = 8;  // norm of what overlaps: loads also wait for a warp that is nearly as slow
constexpr double page_look_up = 110;   // per step of a warp, with pages
constexpr double look_up_alone = 165;  // likewise while few SMs read, whose steps are shorter
constexpr double last_wave = 0.3;      // of a wave: idle SMs in the last one
// Imbalance of sequences whose lengths are on the device, when other clusters cannot help with long ones.
// Many waves of single blocks even it out.
constexpr double uneven = 0.25;
constexpr double uneven_waves = 4;
// SMs per GPC, which contains whole clusters; one GPC has fewer.
constexpr int multiprocessors_of_gpc = 16;

// The number of co-resident clusters.
double resident_clusters(const DeviceLimits& limits, const ForwardSplitCluster& config) {
  if (config.cluster == 1) return limits.sm_count * config.blocks_per_sm;
  const int gpcs =
      limits.sm_count / multiprocessors_of_gpc - (config.cluster == multiprocessors_of_gpc ? 1 : 0);
  return std::max(1, gpcs) * std::max(1, multiprocessors_of_gpc * config.blocks_per_sm / config.cluster);
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
  const double in_flight = tile_bytes * std::min<double>(config.stages, steps) * warps;
  const double shared_rate = memory_bytes_per_clock * limits.sm_count / sms;
  const double rate =
      std::min(alone_bytes_per_clock, shared_rate) /
      ((1 + tile_cost_bytes / tile_bytes) *
       (1 + scarce_bytes / in_flight + std::max(0.0, in_flight - enough_bytes) / crowded_bytes));
  const double conversion = has_narrow_keys(spec) ? fp8_conversion : 1;
  const double of_pages = shared_rate > alone_bytes_per_clock ? look_up_alone : page_look_up;
  const double look_up = spec.sequences_kv == SequenceKind::paged ? of_pages : 0;
  const double products = config.tile_kv / 16 * (d + dv) / 256;
  const double loads = conversion * tile_bytes * warps / rate, issue = issue_clocks * products * warps;
  const double chain = step_clocks + warp_clocks * products;
  const double step =
      std::pow(std::pow(loads, overlap) + std::pow(issue, overlap) + std::pow(chain, overlap), 1 / overlap) +
      look_up;
  const double merge = merge_clocks + config.cluster * block_clocks;
  const double waves_of_one = config.cluster == 1 ? waves : 1;
  const double waits = shape.has_device_lengths && shape.batch > 1
                           ? 1 + uneven * std::min(1.0, uneven_waves / waves_of_one)
                           : 1;
  double cycles = launch_clocks + waits * waves * (steps * step + merge);
  const Footprint needs = footprint(spec, config);
  const int spare = needs.register_cap - needs.registers;
  if (spare < 0) cycles *= 1.15 - spare * 0.01;
  return cycles;
}

}  // namespace jit
