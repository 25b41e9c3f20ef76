// The layout of a block's shared memory. Host and NVRTC compile this file; the generated program asserts that both
// compute the same size.
#pragma once

#include "backward/step_infos.cuh"
#include "backward/tensor_maps.cuh"
#include "backward/visits.cuh"
#include "base/element.cuh"
#include "base/host_device.cuh"
#include "pipeline/smem_allocator.cuh"
#include "tiles/panel_tile.cuh"

namespace jit::backward_tcgen05 {

/// Queries of a step, and keys of a block: each product has the rows of one instruction.
inline constexpr int tile_q = 128, tile_kv = 128;

/// Warps of a block that compute scores, a half of the queries each four of them, and warps that read dQ.
inline constexpr int score_warps = 8, dq_warps = 4;

struct SmemSizes {
  int head_dim;
  int head_dim_v;
  int stages;
  bool deterministic;
};

/// Columns of dQ that are added at once, and of all of it, in fp32.
JIT_HOST_DEVICE constexpr int dq_columns(int head_dim) { return padded_head_dim(head_dim); }
JIT_HOST_DEVICE constexpr int dq_part_columns(int head_dim) {
  return dq_columns(head_dim) % 32 == 0 ? 32 : 16;
}

/// Steps whose records of dQ are kept: more than the producer is ahead of the adder.
inline constexpr int stages_dq_infos = 16;
inline constexpr int dq_places = 2;

/// Byte offsets from the start of dynamic shared memory, which is aligned to 1024 bytes.
///
///     | K, V | Q stage 0 | … | dO stage 0 | … | dS | dQ part 0 | dQ part 1 | LSE | delta | tile infos | barriers |
///
/// The stage of those that end in "barriers" lies in tensor memory.
struct SmemLayout {
  PipelinePlace keys;  ///< K and then V
  PipelinePlace q;
  PipelinePlace d_o;
  PipelinePlace ds;                 ///< rounded, of all keys; empty when dP of the next step is there
  PipelinePlace dq;                 ///< what waits to be added to global memory
  PipelinePlace scores_barriers;    ///< S; overwritten when P was told
  PipelinePlace p_barriers;         ///< P
  PipelinePlace d_scores_barriers;  ///< dP; overwritten when dS was told
  PipelinePlace dq_barriers;        ///< dQ, over dP and dS
  PipelinePlace sums_barriers;      ///< dK and dV of a tile of keys
  int lse_log2;                     ///< of the queries of each stage
  int delta;
  int turn_counts;  ///< for each stage, those of four tiles of keys (backward/visits.cuh), or two words; deterministic
  int infos;            ///< QueryTileInfo for each stage
  int dq_infos;         ///< int for each of the last steps: which tile its dQ belongs to
  PipelinePlace turns;  ///< int for each step whose turn has come: how many add before it; deterministic
  int key_tile_info;
  int tmem_address;  ///< of the columns that the block has
  int total;
};

JIT_HOST_DEVICE constexpr SmemLayout smem_layout(const SmemSizes& sizes, int stages_do) {
  constexpr int word = 4, statistic_bytes = tile_q * word;
  SmemAllocator memory;
  const auto tiles = [&](int stages, int bytes) {
    return PipelinePlace{stages, memory.tiles(stages * bytes), PipelinePlace::none, PipelinePlace::none};
  };
  SmemLayout layout{};
  layout.keys =
      tiles(1, panel_tile_bytes(tile_kv, sizes.head_dim) + panel_tile_bytes(tile_kv, sizes.head_dim_v));
  layout.q = tiles(sizes.stages, panel_tile_bytes(tile_q, sizes.head_dim));
  layout.d_o = tiles(stages_do, panel_tile_bytes(tile_q, sizes.head_dim_v));
  layout.ds = tiles(1, panel_tile_bytes(tile_kv, tile_q));
  layout.dq = tiles(dq_places, tile_q * dq_part_columns(sizes.head_dim) * word);
  layout.lse_log2 = memory.place(sizes.stages * statistic_bytes, 128);
  layout.delta = memory.place(stages_do * statistic_bytes, 128);
  layout.turn_counts = memory.rows(sizes.deterministic ? sizes.stages * turn_count_bytes : 0);
  layout.infos = memory.numbers(sizes.stages * static_cast<int>(sizeof(QueryTileInfo)));
  layout.dq_infos = memory.words(stages_dq_infos * word);
  layout.turns = {sizes.deterministic ? stages_turns : 0, memory.words(stages_turns * word), 0, 0};
  layout.key_tile_info = memory.numbers(key_info_bytes);
  layout.tmem_address = memory.words(word);
  for (PipelinePlace* pipeline :
       {&layout.keys, &layout.q, &layout.d_o, &layout.ds, &layout.dq, &layout.turns})
    memory.barriers(*pipeline, pipeline->stages);
  for (PipelinePlace* pipeline : {&layout.scores_barriers, &layout.p_barriers, &layout.d_scores_barriers,
                                  &layout.dq_barriers, &layout.sums_barriers})
    memory.barriers(*pipeline, 1);
  layout.total = memory.total();
  return layout;
}

/// Bytes that a block can have.
inline constexpr int largest_smem = 227 * 1024;

/// With as many stages of dO as of Q, or with one where there is no room: dO is needed later.
JIT_HOST_DEVICE constexpr SmemLayout smem_layout(const SmemSizes& sizes) {
  const SmemLayout layout = smem_layout(sizes, sizes.stages);
  return layout.total <= largest_smem ? layout : smem_layout(sizes, 1);
}

}  // namespace jit::backward_tcgen05
