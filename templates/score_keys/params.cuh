// The parameters of the kernel that scores keys, and its shared memory, for the host and the device.
#pragma once

#include "base/element.cuh"
#include "base/host_device.cuh"
#include "base/tensor_strides.cuh"
#include "pipeline/smem_allocator.cuh"
#include "tiles/panel_tile.cuh"

namespace jit {

struct ScoreKeysParams {
  TensorMap q;  ///< (head_dim, heads, tokens of an entry, entries)
  TensorMap k;  ///< (head_dim, keys of a page, 1, pages); dense keys are one page
  const float* weights;
  long long weight_token;
  long long weight_head;
  const float* k_scale;  ///< null: 1
  long long scale_page;
  long long scale_key;
  const int* starts;      ///< (tokens); null: 0
  const int* ends;        ///< (tokens); null: columns
  const int* page_table;  ///< (entries, table_pages); null: dense keys
  long long table_stride;
  float* scores;  ///< (tokens, columns)
  long long score_token;
  float* block_scores;  ///< (tokens, blocks)
  long long block_score_token;
  int table_pages;
  int pages;
  int columns;            ///< that any token may see
  int tokens;             ///< of an entry
  int token_tiles;        ///< of an entry
  int chunk_tiles;        ///< tiles of keys that a block scores before it goes to other tokens
  int items;              ///< token_tiles · entries · chunks
  int columns_of_tokens;  ///< token_tiles · entries
};

/// A tile is keys of four warpgroups by rows of q: heads of one token behind another.
inline constexpr int score_keys_consumers = 4;
inline constexpr int score_keys_tile = score_keys_consumers * rows_per_warpgroup;
inline constexpr int score_keys_columns = 128;
/// Keys that come at once: a tile of dense ones; pages are multiples of so many, or smaller than that.
JIT_HOST_DEVICE constexpr int score_keys_box(int page_size) {
  constexpr int most = 64;
  return page_size == 0 ? score_keys_tile : page_size > most ? most : page_size;
}
/// Keys whose largest score is written, too, where it is asked for.
inline constexpr int score_keys_block = 8;
inline constexpr int score_keys_threads = (score_keys_consumers + 1) * 128;

struct ScoreKeysSmem {
  PipelinePlace q;
  PipelinePlace k;
  int scales;  ///< of a stage's keys
  int total;
};

JIT_HOST_DEVICE constexpr ScoreKeysSmem score_keys_smem(int head_dim, int bytes) {
  const int q_bytes = panel_tile_bytes(score_keys_columns, head_dim, bytes);
  const int k_bytes = panel_tile_bytes(score_keys_tile, head_dim, bytes);
  constexpr int room = 220 * 1024, most_stages = 6;
  const int fit = (room - 2 * q_bytes) / (k_bytes + score_keys_tile * 4);
  const int stages = fit < most_stages ? fit : most_stages;
  ScoreKeysSmem smem{};
  SmemAllocator allocator;
  smem.q.tiles = allocator.tiles(2 * q_bytes);
  smem.k.tiles = allocator.tiles(stages * k_bytes);
  smem.scales = allocator.rows(stages * score_keys_tile * 4);
  allocator.barriers(smem.q, 2);
  allocator.barriers(smem.k, stages);
  smem.total = allocator.total();
  return smem;
}

}  // namespace jit
