// The parameters of gradients from lists of blocks of keys by wgmma, and how their tiles are counted. Compiled by the host and
// by NVRTC.
//
// Transposed lists (transpose_lists/params.cuh) name the queries of each block of keys: a slot each. Queries that share a list
// have one each for that, with the entries that they see, since a tile with rows of others takes as long as a full one. Rows of
// 64 / gqa_ratio slots are a tile of queries, and so many tiles an item of work. Tiles and items of a block begin where those of a sequence of slots do (base/varlen_tiles.cuh), so that nobody
// counts them.
#pragma once

#include "backward/tensor_maps.cuh"
#include "base/gradient_params.cuh"
#include "base/host_device.cuh"
#include "base/params.cuh"
#include "base/varlen_tiles.cuh"

namespace jit {

/// Numbers of a row of queries; one that has no keys has a `lse_log2` of +inf.
struct ListedRowNumbers {
  float lse_log2;     ///< log2 Σ exp(score)
  float minus_delta;  ///< −(do · o − dlse)
};

/// Tiles of an item. A block of keys that all queries name has many items, which blocks of the grid share.
inline constexpr int listed_item_tiles = 32;

/// Memory that the kernels of a call share beside GradientParams::dq_sums, which are the dQ of each tile,
/// (KV heads, head_tiles), and which lists a launch has.
struct ListedWork {
  int* blocks;  ///< (queries of this launch, KV heads, entries): the number of each entry's block; −1: none
  const int* starts;  ///< of `blocks` transposed (transpose_lists), (KV heads, block_limit + 1)
  const int* places;  ///< (KV heads, queries · entries)
  int* slots;  ///< (KV heads, queries · entries): a place's slot, counted in all tiles; −1: it has none
  ListedRowNumbers* rows;  ///< (rows of q, query heads)
  float* sums;  ///< dK and dV of items before the last one, (KV heads, block_limit), as consumers hold them
  int* done;    ///< (KV heads, block_limit): how many warps have added to sums, in this launch
  int block_limit;
  int blocks_of_head;  ///< places of blocks
  int head_tiles;      ///< places of tiles
  int head_items;      ///< the same of items
  int first_query;     ///< row of q
  int queries;
  int entries;
  bool is_first;  ///< of launches that add to the same keys
  bool is_last;
};

/// The third parameter of the kernel.
struct ListedMaps : SequenceMaps {
  ListedWork work;
};

/// The work of a launch of the kernel for what lies before and behind.
enum class ListedStep : int {
  number,   ///< the block of each entry
  rows,     ///< ListedRowNumbers
  zeros,    ///< gradients of keys that are no sequence's
  queries,  ///< dQ: the sums of parts
};

/// The only parameter of that.
struct ListedParams {
  AttentionParams attention;
  GradientParams gradients;  ///< `delta` is (heads_q, total_q), written where sinks have gradients
  ListedWork work;
  ListedStep step;
};

inline constexpr int listed_threads = 256;
/// Lanes that have a row of o and do.
inline constexpr int listed_row_lanes = 16;

/// Slots of a tile.
JIT_HOST_DEVICE constexpr int listed_tile_slots(int gqa_ratio) { return rows_per_warpgroup / gqa_ratio; }
JIT_HOST_DEVICE constexpr int listed_item_slots(int gqa_ratio) {
  return listed_item_tiles * listed_tile_slots(gqa_ratio);
}

}  // namespace jit
