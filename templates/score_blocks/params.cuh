// The parameters of the kernel that scores blocks of keys, and its shared memory, for the host and the device.
#pragma once

#include "base/element.cuh"
#include "base/host_device.cuh"
#include "base/params.cuh"
#include "base/tensor_strides.cuh"
#include "pipeline/smem_allocator.cuh"
#include "tiles/panel_tile.cuh"

namespace jit {

struct ScoreBlocksParams {
  TensorMap q;  ///< boxes of score_blocks_queries
  TensorMap k;  ///< boxes of score_blocks_keys
  AttentionParams attention;
  float*
      scores;  ///< (batch, seqlen_q, heads, blocks); varlen: (total_q, heads, blocks). Summed heads are heads_kv
  TensorStrides score_strides;
  int blocks;
  int query_tiles;  ///< of a batch entry; of varlen queries their places
  int chunk_tiles;  ///< tiles of keys that a thread block scores before it goes to other queries
  int columns;      ///< tiles of queries of all heads and entries
  int items;        ///< columns · chunks
};

/// A tile is rows of two warpgroups by keys of some blocks.
inline constexpr int score_blocks_consumers = 2;
inline constexpr int score_blocks_queries = score_blocks_consumers * rows_per_warpgroup;
inline constexpr int score_blocks_keys = 128;
inline constexpr int score_blocks_threads = (score_blocks_consumers + 1) * 128;

struct ScoreBlocksSmem {
  PipelinePlace q;
  PipelinePlace k;
  int total;
};

/// Where heads of a group are summed, queries change faster than keys, which lie still while a group's heads go by.
JIT_HOST_DEVICE constexpr ScoreBlocksSmem score_blocks_smem(int head_dim, bool sums_heads) {
  const int q_bytes = panel_tile_bytes(score_blocks_queries, head_dim);
  const int k_bytes = panel_tile_bytes(score_blocks_keys, head_dim);
  static_assert(score_blocks_queries == score_blocks_keys, "either may be the one that changes faster");
  constexpr int room = 220 * 1024, most_stages = 5;
  const int few = head_dim <= 128 ? 2 : 1, fit = (room - few * q_bytes) / k_bytes;
  const int many = fit < most_stages ? fit : most_stages, q_stages = sums_heads ? many : few;
  ScoreBlocksSmem smem{};
  SmemAllocator allocator;
  smem.k.stages = sums_heads ? few : many;
  smem.q.tiles = allocator.tiles(q_stages * q_bytes);
  smem.k.tiles = allocator.tiles(smem.k.stages * k_bytes);
  allocator.barriers(smem.q, q_stages);
  allocator.barriers(smem.k, smem.k.stages);
  smem.total = allocator.total();
  return smem;
}

}  // namespace jit
