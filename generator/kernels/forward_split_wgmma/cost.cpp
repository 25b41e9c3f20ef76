// The cost model of forward_split_wgmma.
#include <algorithm>
#include <cmath>

#include "generator/kernels/forward_split_wgmma/family.h"
#include "templates/base/element.cuh"

namespace jit {

using namespace forward_split_wgmma;

namespace {

// Of one multiprocessor, in clocks. A wgmma of N columns takes N / 2. Set by hand, beside
// timings of decoding and prefill at head_dim 128 on an H200.
constexpr double memory_bytes_per_clock = 18.5;
constexpr double l2_bytes_per_clock = 45;
constexpr double scarce_bytes = 17800;   // by the cube of this over the bytes on the way reading takes longer
constexpr double enough_bytes = 131072;  // on the way
constexpr double page_clocks = 40;       // for each tile whose pages are looked up
constexpr double step_clocks = 700;      // of a consumer alone, beside products and exponentials
constexpr double softmax_per_key = 5.8;  // of a consumer, for each key of a tile
constexpr double tensor_share = 0.9;     // of their rate, that the tensor cores reach at best
constexpr double launch_clocks = 6000;
constexpr double unit_clocks = 2500;
constexpr double waiting_for_queries = 800;  // where they have one buffer
constexpr double part_clocks = 60;           // that the last block of a unit needs for each part
constexpr double single_stage = 1.25;
// The models of other families do not know what memory can bring, so that theirs come out lower for few queries.
constexpr double beside_other_families = 0.7;

}  // namespace

double Family<ForwardSplitWgmma>::cycles(const Case& problem, const ProblemShape& shape,
                                         const ForwardSplitWgmma& config) {
  const auto& [spec, limits] = problem;
  const double d = padded_head_dim(spec.head_dim), dv = padded_head_dim(spec.value_head_dim());
  const double heads_kv = static_cast<double>(shape.heads_q) / spec.gqa_ratio;
  const double row_tiles = std::ceil(static_cast<double>(shape.seqlen_q) * spec.gqa_ratio / config.tile_rows);
  const double units = static_cast<double>(shape.batch) * heads_kv * row_tiles;
  const double tiles = std::max(1.0, std::ceil(static_cast<double>(shape.seqlen_kv) / config.tile_kv));

  // One tile of keys. Tiles of rows of one KV head find their keys in L2, but for the first.
  const double blocks = config.blocks_per_sm;
  const double tile_bytes = config.tile_kv * (d + dv) * element_bytes;
  const double in_flight = std::min(enough_bytes, tile_bytes * config.stages * blocks);
  const double memory =
      tile_bytes / memory_bytes_per_clock / row_tiles * (1 + std::pow(scarce_bytes / in_flight, 3)) +
      tile_bytes / l2_bytes_per_clock * (1 - 1 / row_tiles) +
      (spec.sequences_kv == SequenceKind::paged ? page_clocks : 0);
  const double products = config.tile_kv / 2.0 * (d + dv) / 16;
  const double consumers = consumers_of(config) * blocks;
  const double alone = products + softmax_per_key * config.tile_kv + step_clocks;
  double step = std::max({memory * blocks, products * consumers / tensor_share, alone});
  if (config.stages == 1) step *= single_stage;

  const double slots = static_cast<double>(limits.sm_count) * blocks;
  const double own_tiles = std::ceil(units * tiles / slots);
  const double parts = std::min(tiles, std::ceil(tiles / own_tiles));
  const double own_units = std::ceil(own_tiles / tiles);
  const double unit = config.stages_q > 1 ? unit_clocks : unit_clocks + waiting_for_queries;
  return (launch_clocks + own_tiles * step + own_units * unit + (parts > 1 ? parts * part_clocks : 0)) *
         beside_other_families;
}

}  // namespace jit
