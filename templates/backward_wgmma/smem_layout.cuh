// The layout of a block's shared memory. Host and NVRTC compile this file; the generated program asserts that both
// compute the same size.
#pragma once

#include "backward/listed_queries.cuh"
#include "backward/step_infos.cuh"
#include "backward/tensor_maps.cuh"
#include "backward/visits.cuh"
#include "base/dropout_params.cuh"
#include "base/host_device.cuh"
#include "jit/options.h"
#include "pipeline/smem_allocator.cuh"
#include "tiles/panel_tile.cuh"

namespace jit::backward_wgmma {

/// Queries of a step.
inline constexpr int step_queries = rows_per_warpgroup;

struct SmemSizes {
  int head_dim;
  int head_dim_v;
  int tile_kv;  ///< keys of a block, or of both blocks of a pair
  int stages;
  bool pair;
  bool deterministic;
  bool draws;              ///< for dropout
  bool is_bounded;         ///< only the device knows where sequences end
  bool is_wide;            ///< dK and dV are fp32
  bool has_means = false;  ///< gradients of means of scores
  bool is_listed = false;  ///< lists have put tiles of queries together
};

/// How the consumers of a block divide its products: each has the rows of 64 keys, or, if sums of 64 keys alone fill
/// the registers of a warpgroup or a block mask has blocks of 64 keys, each has a role: dV, dK or dQ.
inline constexpr int largest_of_rows = 128;  ///< largest head dim without roles
JIT_HOST_DEVICE constexpr int keys_of_block(bool roles) {
  return roles ? rows_per_warpgroup : 2 * rows_per_warpgroup;
}
/// Keys that a block owns: the two blocks of a pair share a tile of keys.
JIT_HOST_DEVICE constexpr int own_keys(int tile_kv, bool pair) { return pair ? tile_kv / 2 : tile_kv; }
JIT_HOST_DEVICE constexpr bool has_roles(int tile_kv, bool pair) {
  return own_keys(tile_kv, pair) == keys_of_block(true);
}
inline constexpr int largest_beside_queries = 64;  ///< largest head dim next to a dQ consumer
/// Whether a separate consumer computes dQ: with roles, or if the sums of rows leave registers for one.
JIT_HOST_DEVICE constexpr bool has_query_consumer(int head_dim, int head_dim_v, bool roles) {
  return roles || (head_dim <= largest_beside_queries && head_dim_v <= largest_beside_queries);
}
/// Stages of dO: a pair has no room for two of the largest.
JIT_HOST_DEVICE constexpr int stages_do(int head_dim, int head_dim_v, int stages, bool pair) {
  constexpr int most_panels = 6;
  return pair && panel_count(head_dim) + panel_count(head_dim_v) > most_panels ? 1 : stages;
}
JIT_HOST_DEVICE constexpr int consumer_count(bool query_consumer) { return query_consumer ? 3 : 2; }

/// Columns of the fp32 sums of dQ: whole panels of K.
JIT_HOST_DEVICE constexpr int dq_columns(int head_dim) {
  return panel_count(head_dim) * panel_columns(head_dim);
}
/// Parts of a tile of dQ that are multiplied one by one, each with some of its columns: panels, or one per consumer.
JIT_HOST_DEVICE constexpr int dq_parts(int head_dim, bool query_consumer) {
  return query_consumer ? panel_count(head_dim) : 2;
}
/// Parts that a block multiplies: half of the panels in a pair, of which the first block has the middle one.
JIT_HOST_DEVICE constexpr int own_dq_parts(int parts, bool pair) { return pair ? (parts + 1) / 2 : parts; }
JIT_HOST_DEVICE constexpr int dq_part_columns(int head_dim, bool query_consumer) {
  return dq_columns(head_dim) / dq_parts(head_dim, query_consumer);
}
/// The number of adders of a block, each with its own parts of dQ.
JIT_HOST_DEVICE constexpr int dq_adders(bool query_consumer) { return query_consumer ? 1 : 2; }

JIT_HOST_DEVICE constexpr bool has_roles(const SmemSizes& sizes) {
  return has_roles(sizes.tile_kv, sizes.pair);
}
JIT_HOST_DEVICE constexpr bool has_query_consumer(const SmemSizes& sizes) {
  return has_query_consumer(sizes.head_dim, sizes.head_dim_v, has_roles(sizes));
}

/// Byte offsets from the start of dynamic shared memory, which is aligned to 1024 bytes.
///
///     | K, V stage 0 | … | Q stage 0 | … | dO stage 0 | … | dS stage 0 | … | dQ | W | dV, dK | LSE | delta | draws | tile infos | barriers |
///
/// dQ waits here to be added to global memory, in buffers of each adder. Only consumers with roles have W = P ∘ f′. dV
/// and dK are stored to global memory from buffers of each row consumer warp. Barriers have 8 bytes.
struct SmemLayout {
  PipelinePlace keys;    ///< K and then V
  PipelinePlace values;  ///< empty barriers of V, with one stage of keys
  int peer_k;            ///< in a pair: the panels of the peer's keys that this block multiplies for dQ
  PipelinePlace q;
  PipelinePlace d_o;    ///< has empty barriers only with roles
  PipelinePlace ds;     ///< has empty barriers only with a dQ consumer
  PipelinePlace dq;     ///< buffers of each adder
  int dq_places;        ///< buffers per adder; 0: consumers add from registers
  PipelinePlace w;      ///< with roles
  int gradients;        ///< buffers of each row consumer warp
  int gradient_places;  ///< buffers per warp: for dV and for dK, one for both, or none
  int lse_log2;         ///< of the queries of each stage
  int delta;            ///< the same
  int means;            ///< gradients of means, the same
  int turn_counts;  ///< for each stage, those of four tiles of keys (backward/visits.cuh), or two words; deterministic
  int draws;       ///< what pairs of warps tell each other of dropout, of two steps; without roles
  int infos;       ///< QueryTileInfo for each stage
  int query_rows;  ///< int for each row of each stage: its position; listed
  int shares;      ///< int for each stage of keys: what is to be done with their gradients; listed
  int dq_infos;    ///< int for each of the last steps: which tile its dQ belongs to
  /// Int for each step whose turn has come: the number of earlier additions; deterministic.
  PipelinePlace turns;
  /// Int for each step with unsignaled additions: its tile of queries; deterministic, with a dQ consumer.
  PipelinePlace added;
  /// Two ints in a pair: the tile of keys that the first block took. `full` is in the second block, `empty` in the
  /// first.
  PipelinePlace schedule;
  /// Two ints for each stage of keys: the index of its tile, and whether queries see it.
  int key_tile_info;
  int total;
};

/// Numbers of stages and buffers that fit shared memory.
struct SmemShares {
  int stages_keys;
  int gradient_places;
  int dq_places;
  int stages_ds;
};

/// Stages of dQ infos: the producer is at most four steps ahead of consumers, these four ahead of a dQ consumer, and
/// that two ahead of its adder.
inline constexpr int stages_dq_infos = 16;

/// Bytes of a step's dropout bits: a word for each lane of a pair of warps and each 32 queries.
JIT_HOST_DEVICE constexpr int draw_bytes(int tile_kv) { return tile_kv / 32 * (step_queries / 32) * 32 * 4; }

JIT_HOST_DEVICE constexpr SmemLayout smem_layout(const SmemSizes& sizes, const SmemShares& shares) {
  constexpr int barrier_bytes = 8, tile_alignment = 1024;
  constexpr int word = 4, float_bytes = 4;
  int end = 0;
  const auto place = [&end](int bytes, int alignment) {
    const int begin = (end + alignment - 1) / alignment * alignment;
    end = begin + bytes;
    return begin;
  };
  const auto tiles = [&](int stages, int bytes, int alignment) {
    return PipelinePlace{stages, place(stages * bytes, alignment), PipelinePlace::none, PipelinePlace::none};
  };
  const auto place_barriers = [&](PipelinePlace& pipeline, bool has_full, bool has_empty) {
    if (has_full) pipeline.full = place(pipeline.stages * barrier_bytes, barrier_bytes);
    if (has_empty) pipeline.empty = place(pipeline.stages * barrier_bytes, barrier_bytes);
  };
  const bool roles = has_roles(sizes), queries = has_query_consumer(sizes);
  const int keys = own_keys(sizes.tile_kv, sizes.pair);
  const int stages_do = backward_wgmma::stages_do(sizes.head_dim, sizes.head_dim_v, sizes.stages, sizes.pair);
  const int peer_panels = sizes.pair ? own_dq_parts(panel_count(sizes.head_dim), true) : 0;
  const int dq_part_bytes = step_queries * dq_part_columns(sizes.head_dim, queries) * float_bytes;
  const int turns = sizes.deterministic ? stages_turns : 0;
  constexpr int row_warps = 2 * rows_per_warpgroup / gradient_rows;
  SmemLayout layout{};
  layout.dq_places = shares.dq_places;
  layout.gradient_places = shares.gradient_places;
  layout.keys = tiles(shares.stages_keys,
                      panel_tile_bytes(keys, sizes.head_dim) + panel_tile_bytes(keys, sizes.head_dim_v),
                      tile_alignment);
  layout.values = tiles(1, 0, 1);
  layout.peer_k = place(peer_panels * panel_tile_bytes(keys, panel_columns(sizes.head_dim)), tile_alignment);
  layout.q = tiles(sizes.stages, panel_tile_bytes(step_queries, sizes.head_dim), tile_alignment);
  layout.d_o = tiles(stages_do, panel_tile_bytes(step_queries, sizes.head_dim_v), tile_alignment);
  layout.ds = tiles(shares.stages_ds, panel_tile_bytes(step_queries, sizes.tile_kv), tile_alignment);
  layout.dq = tiles(dq_adders(queries) * shares.dq_places, dq_part_bytes, 128);
  layout.w = tiles(roles ? 1 : 0, step_queries * keys * float_bytes, 128);
  layout.gradients =
      place(shares.gradient_places * row_warps * gradient_place_bytes(sizes.head_dim, sizes.head_dim_v),
            shares.gradient_places > 0 ? tile_alignment : 1);
  layout.lse_log2 = place(sizes.stages * step_queries * float_bytes, 128);
  layout.delta = place(stages_do * step_queries * float_bytes, 128);
  const int mean_bytes = sizes.has_means ? stages_do * step_queries * float_bytes : 0;
  layout.means = place(mean_bytes, sizes.has_means ? 128 : 1);
  layout.turn_counts = place(sizes.deterministic ? sizes.stages * turn_count_bytes : 0, 16);
  layout.draws = place(sizes.draws && !roles ? 2 * draw_bytes(sizes.tile_kv) : 0, 128);
  layout.infos = place(sizes.stages * static_cast<int>(sizeof(QueryTileInfo)), 8);
  layout.query_rows =
      place(sizes.is_listed ? sizes.stages * step_queries * word : 0, sizes.is_listed ? 8 : 1);
  layout.shares = place(sizes.is_listed ? shares.stages_keys * word : 0, sizes.is_listed ? 8 : 1);
  layout.dq_infos = place(stages_dq_infos * word, 8);
  layout.turns = tiles(turns, word, 8);
  layout.added = tiles(shares.dq_places > 0 ? 0 : turns, word, 8);
  layout.schedule = tiles(sizes.pair ? 1 : 0, 2 * word, 8);
  layout.key_tile_info = place(shares.stages_keys * key_info_bytes, 8);
  place_barriers(layout.schedule, true, true);
  place_barriers(layout.keys, true, true);
  place_barriers(layout.values, false, true);
  place_barriers(layout.q, true, true);
  place_barriers(layout.d_o, true, roles);
  place_barriers(layout.ds, true, queries);
  place_barriers(layout.dq, true, true);
  place_barriers(layout.w, true, true);
  place_barriers(layout.turns, true, true);
  place_barriers(layout.added, true, true);
  layout.total = end;
  return layout;
}

/// Shared memory of a block in bytes.
inline constexpr int largest_smem = 227 * 1024;
/// The most gradient buffers of a warp: none with roles; none with boxes that end with their sequence, which take
/// registers, unless there is a dQ consumer; none for fp32 gradients, of which registers are stored in whole sectors.
JIT_HOST_DEVICE constexpr int most_gradient_places(const SmemSizes& sizes) {
  if (has_roles(sizes) || sizes.is_wide) return 0;
  return sizes.is_bounded && !has_query_consumer(sizes) ? 0 : 2;
}
/// The most dQ buffers of an adder. With roles and in turns of varlen sequences, a deterministic dQ consumer adds from
/// registers, which is visible sooner.
JIT_HOST_DEVICE constexpr int most_dq_places(const SmemSizes& sizes) {
  if (!has_query_consumer(sizes)) return 1;
  return sizes.deterministic && (has_roles(sizes) || sizes.is_bounded) ? 0 : 2;
}
/// Whether consumers of rows work next to a dQ consumer.
JIT_HOST_DEVICE constexpr bool is_beside_queries(const SmemSizes& sizes) {
  return has_query_consumer(sizes) && !has_roles(sizes);
}
/// The most stages of dS: one being written and one being multiplied; two more with a dQ consumer.
JIT_HOST_DEVICE constexpr int most_stages_ds(const SmemSizes& sizes) {
  return is_beside_queries(sizes) ? 4 : 2;
}
/// The most stages of keys: next to a dQ consumer, the next tile is copied while this one is computed.
JIT_HOST_DEVICE constexpr int most_stages_keys(const SmemSizes& sizes) {
  return is_beside_queries(sizes) ? 2 : 1;
}
/// The largest layout that fits. A second stage of keys is worth more than second gradient buffers; with roles, a dQ
/// buffer is worth more than a second stage of dS.
JIT_HOST_DEVICE constexpr SmemLayout smem_layout(const SmemSizes& sizes) {
  const bool roles = has_roles(sizes);
  const int most_ds = most_stages_ds(sizes), most_dq = most_dq_places(sizes),
            least_dq = roles || most_dq == 0 ? 0 : 1;
  SmemLayout layout{};
  for (int keys = most_stages_keys(sizes); keys > 0; --keys) {
    for (int gradients = most_gradient_places(sizes); gradients >= keys - 1; --gradients) {
      for (int dq_places = most_dq; dq_places >= least_dq; --dq_places) {
        const int least_ds = roles && dq_places > 0 ? 1 : most_ds;
        for (int stages_ds = most_ds; stages_ds >= least_ds; --stages_ds) {
          layout = smem_layout(sizes, {keys, gradients, dq_places, stages_ds});
          if (layout.total <= largest_smem) return layout;
        }
      }
    }
  }
  return layout;
}

template <class Config>
JIT_HOST_DEVICE constexpr SmemLayout smem_layout() {
  return smem_layout(SmemSizes{
      .head_dim = Config::head_dim,
      .head_dim_v = Config::head_dim_v,
      .tile_kv = Config::tile_kv,
      .stages = Config::stages,
      .pair = Config::pair,
      .deterministic = Config::deterministic,
      .draws = has_dropout<Config> && !has_dropout_mask_ahead<Config>,
      .is_bounded = Config::sequences_q != SequenceKind::dense || Config::sequences_kv != SequenceKind::dense,
      .is_wide = sizeof(OutputElement<Config>) == 4,
      .has_means = has_mean_score<Config>,
      .is_listed = has_listed_queries<Config>});
}

}  // namespace jit::backward_wgmma
