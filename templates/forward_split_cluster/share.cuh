// The rows of a cluster, and the keys of each of its warps. Both follow from the shape of the call and the length of
// the request alone, so every warp computes its own.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "forward_split_cluster/strided_tiles.cuh"
#include "forward_split_cluster/traits.cuh"
#include "problem/variable_sequences.cuh"
#include "ptx/cache_hints.cuh"
#include "scheduling/query_block.cuh"
#include "split_keys/work_tile_keys.cuh"

namespace jit::forward_split_cluster {

/// The tile of packed rows of the block's cluster. KV heads lie along y, batch entries and their tiles along z, and along x
/// where z has no room: heads of a sequence are computed at the same time, as their rows lie side by side in memory. There may
/// be more places than tiles.
template <class Config>
JIT_DEVICE VarlenPlace place_of_cluster(const AttentionParams& params) {
  constexpr int tile_rows = KernelTraits<Config>::tile_rows;
  const int place = static_cast<int>((blockIdx.z * gridDim.x + blockIdx.x) / Config::cluster);
  if constexpr (Config::sequences_q == SequenceKind::varlen) {
    const VariableSequences<Config> sequences(params);
    return varlen_place<tile_rows>(place, params.batch,
                                   [&](int batch) { return sequences.q(batch).begin * Config::gqa_ratio; });
  } else {
    const int longest = Config::seqlen_q != 0 ? Config::seqlen_q : params.seqlen_q;
    const int row_tiles = (longest * Config::gqa_ratio + tile_rows - 1) / tile_rows;
    const int batch = row_tiles == 1 ? place : place / row_tiles;
    if (batch >= params.batch) return {0, -1};
    return {batch, (place - batch * row_tiles) * tile_rows};
  }
}

/// Asks for the pages of a sequence before it is known how many are needed: its length and the table come from memory
/// at once, not one after the other. By the first warp.
template <class Config>
JIT_DEVICE void prefetch_pages(const AttentionParams& params, int batch) {
  constexpr int line_pages = 32;
  const SequenceParams& given = params.sequences;
  const int pages = (params.seqlen_kv + Config::page_size - 1) / Config::page_size;
  const int first = static_cast<int>(threadIdx.x) * line_pages;
  if (threadIdx.x < warp_size && first < pages)
    prefetch_l2(given.page_table + batch * given.page_table_stride + first);
}

/// The work tile of the block's cluster. It may have no rows: the place is empty, or the
/// sequence is shorter than there is room for.
template <class Config>
JIT_DEVICE SplitWorkTile work_tile_of_cluster(const AttentionParams& params) {
  const VarlenPlace place = place_of_cluster<Config>(params);
  if constexpr (KernelTraits<Config>::has_pages) prefetch_pages<Config>(params, place.batch);
  const VariableSequences<Config> sequences(params);
  SplitWorkTile work_tile{.batch = place.batch,
                          .kv_head = static_cast<int>(blockIdx.y),
                          .q = sequences.q(place.batch),
                          .kv = sequences.kv(place.batch)};
  const int rows = place.first_row < 0 ? 0 : work_tile.q.length * Config::gqa_ratio;
  work_tile.enter_rows(maximum(place.first_row, 0), rows, KernelTraits<Config>::tile_rows);
  return work_tile;
}

/// The warp's tiles of those that the work tile's rows see. Of few tiles all blocks have some, one for each of their first
/// warps. `num_splits` blocks share them at most; 0: all of the cluster. Warps take turns at dense keys, so that they read next
/// to each other. In pages, which lie anywhere, their tiles stand side by side, so that a lookup finds the pages of many.
template <class Config>
JIT_DEVICE StridedRange tiles_of_warp(const TileRange& tiles, int rank, int num_splits) {
  const int blocks = num_splits == 0 ? Config::cluster : minimum(Config::cluster, num_splits);
  const int place = warp_id() * blocks + rank;  // mutate: WarpsOfOneBlockAlone
  const int warps = blocks * Config::block_warps;
  int first = tiles.begin + place;  // mutate: AKeyTileOfNobody
  int end = tiles.end;
  if constexpr (KernelTraits<Config>::has_pages) {
    const int each = warps == Config::cluster * Config::block_warps
                         ? tiles.count() / (Config::cluster * Config::block_warps)
                         : tiles.count() / warps;
    const int more = tiles.count() - each * warps;
    first = tiles.begin + place * each + minimum(place, more);
    end = first + each + (place < more ? 1 : 0);
  }
  return {first, rank < blocks ? end : 0, KernelTraits<Config>::has_pages ? 1 : warps};
}

}  // namespace jit::forward_split_cluster
