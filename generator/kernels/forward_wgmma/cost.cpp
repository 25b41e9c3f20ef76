// The cost model of forward_wgmma.
#include <algorithm>
#include <cmath>
#include <initializer_list>

#include <jit/dtype.h>

#include "generator/functors/functor_node.h"
#include "generator/functors/row_keys.h"
#include "generator/functors/score_mask.h"
#include "generator/kernels/block_cover.h"
#include "generator/kernels/converted_scales.h"
#include "generator/kernels/forward_wgmma/family.h"
#include "generator/tensors/dims.h"
#include "templates/base/element.cuh"
#include "templates/tiles/bounded_box.cuh"
#include "templates/tiles/panel_tile.cuh"

namespace jit {

using namespace forward_wgmma;

namespace {

// Rates of an SM: a wgmma of N columns takes N / 2 clocks.
constexpr double smem_bytes_per_clock = 128;
constexpr double exponentials_per_clock = 16;

// Clocks, fitted to 854 timings of an earlier version on an H200, for 60 problems (bench/results,
// docs/records/notebook.md).
constexpr double tensor_share = 0.911;           // highest share of the tensor cores' rate
constexpr double softmax_per_key = 5.8;          // of a consumer, per key of a tile
constexpr double softmax_clocks = 805;           // of a consumer, per tile
constexpr double softmax_share = 1.12;           // of the time of all consumers' exponentials
constexpr double next_work_clocks = 2280;        // between work tiles, if consumers continue without a wait
constexpr double new_work_clocks = 5090;         // between work tiles, otherwise
constexpr double single_buffer_clocks = 200;     // additional, with one buffer of Q for fp8; set by hand
constexpr double masked_per_row = 4.3;           // for partial tiles of a work tile, per row and key
constexpr double neighbors = 1.05;               // factor of several blocks per SM
constexpr double memory_bytes_per_clock = 13.7;  // per SM
// Dropout, set by hand for eight configs on an H200 (docs/records/notebook.md): per consumer, and for all of
// them.
constexpr double draws_per_key = 6.6, shared_draws_per_key = 7.5;
// Factors of the whole kernel, from timings of 2 × 8,192 rows on an H200: consumers draw next to the products
// of a large head_dim; a small one leaves little time to load and apply precomputed bits.
constexpr double drawn_beside_products = 1.14, dropped_by_bits = 1.14;
// Factors of choices that are rarely fastest, set by hand.
constexpr double three_masked = 1.06;  // three consumers under a mask: most skip some of the last tiles
// Tiles of more keys than queries under a mask: of 128 × 160 and 128 × 128 at head_dim 128 the second is 1 to 4 %
// faster (docs/records/notebook.md), and compiles in less time.
constexpr double wide_masked = 1.015;
constexpr double three_of_documents = 1.25;  // of whose tiles many have several documents
// FP8 factors, from timings of 20 configs (docs/records/notebook.md): three consumers of a large head_dim,
// and several blocks per SM, which each transpose V.
constexpr double three_of_fp8 = 1.1, neighbors_of_fp8 = 1.45;
constexpr double out_of_turn = 1.01;
constexpr double single_stage = 1.25;
constexpr double two_stages = 1.003;
constexpr double seeking_maxima = 1.06;  // in every tile of keys
constexpr double unsure_maxima = 1.07;   // on overflow, if the first tile may be masked for some rows
// To issue the copy of a box panel: for pages of 16 on an H200.
constexpr double box_clocks = 110;
// Upcasts of 8-bit K and V, set by hand from instruction counts of converters: clocks of a warp for two
// rounds of 16 elements per lane, and per tile.
constexpr double to_fp16_clocks = 60, scaled_clocks = 150, p_exchange_clocks = 300;
constexpr double elements_of_rounds = 1024;
constexpr double spare_converters = 1.12;  // two warps, in two of the four SM sub-partitions
constexpr double upcast_beside =
    1.05;  // slowdown by a kernel's own converters: 4 × 512 queries of 8,192 keys, H200
constexpr double delivered_share = 0.85;  // of shared memory's rate, next to converters
// Launch time of the upcasting kernel ahead, set by hand.
constexpr double upcasting_launch_clocks = 4000;
constexpr double single_stored =
    1.15;  // with one stage of stored tiles: loads wait until conversion has ended
// Tiles of queries per block below which unequal sequence lengths cause the largest imbalance.
constexpr double few_waves = 8;
// There, with few queries per sequence: a query tile of one head is nearly empty, but reads all keys.
constexpr double few_queries = 64;
constexpr double nearly_empty = 4;

// Concurrent work takes longer than its longest part: the fourth root of the sum of fourth powers. Without
// std::pow, since a search calls this millions of times.
double overlapped(std::initializer_list<double> times) {
  double sum = 0;
  for (const double time : times) sum += time * time * (time * time);
  return std::sqrt(std::sqrt(sum));
}

// The keys of a query's document before it, and after it, as a share of the sequence: set by hand, as only the device
// knows documents (docs/records/notebook.md).
constexpr double document_share = 0.048;

// Mean work of sampled tiles of queries.
struct TileWork {
  double steps = 0;  // tiles of keys
  double repeated =
      0;  // steps repeated because rows of a consumer see their first key after the consumer's first tile
  double masked_ends = 0;  // ends of the key range with partial tiles
};

// Steps per consumer that are repeated because rows see their first key in a later tile: first keys of the
// tile's rows go from `first` to `last`.
double repeated_steps(const ForwardWgmma& config, std::int64_t first, std::int64_t last) {
  const int consumers = consumers_of(config);
  const auto tile_of = [&](std::int64_t of_consumers, std::int64_t keys_before) {
    return (first + (last - first) * of_consumers / consumers - keys_before) / config.tile_kv;
  };
  std::int64_t repeated = 0;
  for (int c = 0; first < last && c < consumers; ++c) {
    const std::int64_t begin = tile_of(c, 0), end = std::max(begin, tile_of(c + 1, 1));
    repeated += end - begin + (begin > first / config.tile_kv ? 1 : 0);
  }
  return static_cast<double>(repeated) / consumers;
}

// Mean work of a tile. Treats masks that depend on tensors as causal, for lack of a better estimate, but for documents.
TileWork work_of_tile(const AttentionSpec& spec, const ForwardWgmma& config, const ProblemShape& shape) {
  const auto steps = [&](std::int64_t begin, std::int64_t end) {
    return static_cast<double>((end + config.tile_kv - 1) / config.tile_kv - begin / config.tile_kv);
  };
  if (!drops_keys(spec)) return {.steps = steps(0, shape.seqlen_kv)};
  constexpr std::int64_t most_samples = 32;
  // Sizes of a sequence, averages or bounds if lengths are on the device.
  const Extents sizes{.batch = shape.batch,
                      .seqlen_q = shape.seqlen_q,
                      .seqlen_kv = shape.seqlen_kv,
                      .heads_q = shape.heads_q};
  const std::int64_t tiles = (shape.seqlen_q + config.tile_q - 1) / config.tile_q;
  const std::int64_t samples = std::min(tiles, most_samples);
  const bool of_documents = has_documents(spec.mask);
  const auto around = static_cast<std::int64_t>(document_share * static_cast<double>(shape.seqlen_kv));
  const auto keys_of = [&](std::int64_t q, const KeyRange& otherwise) {
    KeyRange keys = row_keys(spec.mask, sizes, q).value_or(otherwise);
    if (of_documents) {
      const std::int64_t position = q + shape.seqlen_kv - shape.seqlen_q;
      keys = {std::max(keys.begin, position - around), std::min(keys.end, position + around)};
    }
    return keys;
  };
  TileWork sum{.masked_ends = static_cast<double>(samples)};
  for (std::int64_t i = 0; i < samples; ++i) {
    const std::int64_t q_end = tiles * (i + 1) / samples * config.tile_q, q_begin = q_end - config.tile_q;
    const KeyRange causal{
        0, std::clamp<std::int64_t>(q_end + shape.seqlen_kv - shape.seqlen_q, 0, shape.seqlen_kv)};
    const KeyRange otherwise = of_documents ? KeyRange{0, shape.seqlen_kv} : causal;
    const KeyRange first = keys_of(q_begin, otherwise), last = keys_of(q_end - 1, otherwise);
    const std::int64_t begin = std::min(first.begin, last.begin), end = std::max(first.end, last.end);
    if (begin >= end) continue;
    // Documents begin and end anywhere: half a tile more at each end, on average, than their keys fill. Causal rows end
    // with their queries.
    const bool ends_anywhere = of_documents && end == q_end - 1 + shape.seqlen_kv - shape.seqlen_q + around;
    sum.steps += !of_documents   ? steps(begin, end)
                 : ends_anywhere ? static_cast<double>(end - begin) / config.tile_kv + 1
                                 : steps(0, end) - static_cast<double>(begin) / config.tile_kv + 0.5;
    sum.repeated += repeated_steps(config, first.begin, last.begin);
    sum.masked_ends += begin > 0 ? 1 : 0;
  }
  const auto mean = [&](double of_all) {
    return of_all / static_cast<double>(std::max<std::int64_t>(1, samples));
  };
  return {mean(sum.steps), mean(sum.repeated), mean(sum.masked_ends)};
}

// Clocks to issue a key tile's copies, of the warp that issues the most, with pages.
double starting_clocks(const AttentionSpec& spec, const ForwardWgmma& config) {
  if (spec.sequences_kv != SequenceKind::paged || config.upcast_ahead) return 0;
  const int boxes = config.tile_kv / box_rows(config.tile_kv, spec.page_size),
            bytes = size_of(spec.key_dtype());
  const int k = boxes * panel_count(spec.head_dim, bytes);
  const int v = boxes * panel_count(spec.value_head_dim(), bytes);
  const bool has_value_producer = boxes > 1 && config.converter_warps != 2;
  return box_clocks * (has_value_producer ? std::max(k, v) : k + v);
}

// Work tiles of the block that has the most.
double waves_of(const AttentionSpec& spec, const ProblemShape& shape, double waves) {
  const bool are_alike = !drops_keys(spec) || shape.seqlen_kv >= 2 * shape.seqlen_q;
  return !is_plain(spec) && are_alike && waves < few_waves ? std::ceil(waves) : std::max(1.0, waves);
}

// Clocks of the converter warps per tile of keys and values.
double converting_clocks(const AttentionSpec& spec, const ForwardWgmma& config) {
  if (!upcasts(spec, config)) return 0;
  const double rounds = config.tile_kv / elements_of_rounds / std::max(1, config.converter_warps);
  const double clocks = has_converted_scales(spec) ? scaled_clocks : to_fp16_clocks;
  return rounds * (spec.head_dim + spec.value_head_dim()) * clocks + p_exchange_clocks;
}

// Clocks of shared memory if converters read and write tiles, too. TMA's writes do not count.
double delivering_clocks(const AttentionSpec& spec, const ForwardWgmma& config) {
  if (!upcasts(spec, config)) return 0;
  const double d = padded_head_dim(spec.head_dim), dv = padded_head_dim(spec.value_head_dim());
  const double q = rows_per_warpgroup * d, tile = config.tile_kv * (d + dv);
  return (consumers_of(config) * 2 * (q + tile) + (1 + 2) * tile) / (smem_bytes_per_clock * delivered_share);
}

// Clocks of the kernel that upcasts all keys and values ahead: reads them as stored, and writes 16 bits.
double upcasting_clocks(const AttentionSpec& spec, const ProblemShape& shape, const ForwardWgmma& config,
                        const DeviceLimits& limits) {
  if (!config.upcast_ahead) return 0;
  const double bytes =
      key_elements(spec, shape) * (1.0 / facts(spec.key_dtype()).numbers + size_of(spec.dtype));
  return upcasting_launch_clocks + bytes / (memory_bytes_per_clock * limits.sm_count);
}

// Clocks of the kernel that draws the dropout mask: for all scores, except keys that a mask with row ranges
// hides from a whole query tile.
double drawing_clocks(const AttentionSpec& spec, const ProblemShape& shape, const ForwardWgmma& config,
                      const DeviceLimits& limits, const TileWork& work) {
  if (!config.dropout_mask_ahead) return 0;
  const double seen =
      work.steps * config.tile_kv / static_cast<double>(std::max<std::int64_t>(1, shape.seqlen_kv));
  return jit::drawing_clocks(shape, has_row_range(spec.mask) ? std::min(1.0, seen) : 1, limits.sm_count);
}

double step_clocks(const AttentionSpec& spec, const ForwardWgmma& config) {
  const int mma_k = facts(spec.dtype).mma_k;
  const double d = padded_head_dim(spec.head_dim, mma_k), dv = padded_head_dim(spec.value_head_dim());
  // Q Kᵀ reads both operands from shared memory, which bounds narrow tiles.
  const double wide = config.tile_kv / 2.0, reading = (64 + config.tile_kv) * 32 / smem_bytes_per_clock;
  const double own = d / mma_k * std::max(wide, reading) + config.tile_kv / mma_k * dv / 2;
  const double groups = consumers_of(config) * config.blocks_per_sm;
  const double draws = spec.dropout && !config.dropout_mask_ahead ? config.tile_kv : 0;  // keys of a tile
  const double alone = own + softmax_per_key * config.tile_kv + softmax_clocks + draws_per_key * draws;
  const double exponentials = groups * 64 * config.tile_kv / exponentials_per_clock;
  double step =
      overlapped({own * groups / tensor_share, alone, exponentials * softmax_share,
                  shared_draws_per_key * draws * groups, starting_clocks(spec, config) * config.blocks_per_sm,
                  converting_clocks(spec, config), delivering_clocks(spec, config) * config.blocks_per_sm});
  if (config.order == WarpgroupOrder::free && consumers_of(config) > 1) step *= out_of_turn;
  if (consumers_of(config) == 3 && has_fp8_queries(spec) && d > 64) step *= three_of_fp8;
  if (config.stages_k == 1 || config.stages_v == 1) step *= single_stage;
  if (upcasts(spec, config)) step *= upcast_beside;
  if (upcasts(spec, config) && config.stages_stored == 1) step *= single_stored;
  if (upcasts(spec, config) && config.converter_warps == 2) step *= spare_converters;
  if (std::min(config.stages_k, config.stages_v) == 2) step *= two_stages;
  if (config.rescale != Rescale::on_overflow) {
    step *= seeking_maxima;
  } else if (!is_asked_by_parts(spec.mask) && !has_tree(spec.mask)) {
    step *= unsure_maxima;
  }
  return step;
}

}  // namespace

// Dense 16-bit calls of no mask and of a causal one were timed (candidates_recorded_test.cpp): what is predicted further
// behind takes part in a first run for nothing, and some of it compiles half as long again as the rest. With v narrower
// than k predictions are less exact.
double Family<ForwardWgmma>::model_error_for(const AttentionSpec& spec) {
  const AttentionSpec timed{.dtype = spec.dtype,
                            .head_dim = spec.head_dim,
                            .head_dim_v = spec.head_dim_v,
                            .gqa_ratio = spec.gqa_ratio,
                            .mask = spec.mask};
  const bool is_timed = spec == timed && spec.value_head_dim() == spec.head_dim && !has_fp8_queries(spec) &&
                        (spec.mask == Mask() || spec.mask == mask::causal());
  return is_timed ? 1.05 : model_error;
}

double Family<ForwardWgmma>::cycles(const Case& problem, const ProblemShape& shape,
                                    const ForwardWgmma& config) {
  const auto& [spec, limits] = problem;
  const double rows = static_cast<double>(shape.batch * shape.heads_q);
  const double tiles = std::max(1.0, std::ceil(static_cast<double>(shape.seqlen_q) / config.tile_q) * rows);
  const bool is_masked = drops_keys(spec);
  const bool runs_on = config.stages_q > 1 || config.output != OutputPlace::over_q;
  // With fp8, a single buffer of Q costs as much, unless it is released before the last softmax.
  const bool releases_late = has_fp8_queries(spec) && spec.descale_per == ScaleKind::block;
  const bool has_next_queries = runs_on && (config.stages_q > 1 || !releases_late);
  const double single_buffer = has_fp8_queries(spec) && config.stages_q == 1 ? single_buffer_clocks : 0;
  const double covered = block_cover(spec, config.tile_q, config.tile_kv);
  const TileWork work = work_of_tile(spec, config, shape);
  const double steps = work.steps + (config.rescale == Rescale::on_overflow ? work.repeated : 0);
  const double per_tile = steps * covered * step_clocks(spec, config) +
                          (has_next_queries ? next_work_clocks + single_buffer : new_work_clocks) +
                          work.masked_ends * masked_per_row * (config.tile_q + config.tile_kv);
  const double slots = static_cast<double>(limits.sm_count) * config.blocks_per_sm;
  double computing = waves_of(spec, shape, tiles / slots) * per_tile;
  if (config.blocks_per_sm > 1) computing *= has_fp8_queries(spec) ? neighbors_of_fp8 : neighbors;
  if (spec.dropout && spec.head_dim > 64 && !config.dropout_mask_ahead) computing *= drawn_beside_products;
  if (spec.dropout && spec.head_dim <= 64 && config.dropout_mask_ahead) computing *= dropped_by_bits;
  if (is_masked && consumers_of(config) == 3 && !has_tree(spec.mask))
    computing *= has_documents(spec.mask) ? three_of_documents : three_masked;
  if (is_masked && config.tile_q >= 128 && config.tile_kv > config.tile_q) computing *= wide_masked;

  const double queries = static_cast<double>(shape.seqlen_q);
  const double d = spec.head_dim, dv = spec.value_head_dim();
  const int key_bytes = size_of(config.upcast_ahead ? spec.dtype : spec.key_dtype());
  const double bytes = rows * queries * (d * size_of(spec.dtype) + dv * size_of(output_dtype(spec))) +
                       key_elements(spec, shape) * key_bytes;
  const double cycles = overlapped({computing, bytes / (memory_bytes_per_clock * limits.sm_count)}) +
                        upcasting_clocks(spec, shape, config, limits) +
                        drawing_clocks(spec, shape, config, limits, work);
  return !is_plain(spec) && static_cast<double>(shape.seqlen_q) <= few_queries ? nearly_empty * cycles
                                                                               : cycles;
}

}  // namespace jit
