// Work tiles whose keys are split over blocks, and a block's description of its split. Host and NVRTC compile this file.
#pragma once

#include "base/host_device.cuh"
#include "jit/options.h"
#include "problem/seqlen_info.cuh"
#include "scheduling/key_spans.cuh"

namespace jit {

/// A tile of packed rows (split_keys/packed_rows.cuh) of one KV head of a batch entry, and all keys that they see.
struct SplitWorkTile {
  int batch;
  int kv_head;
  int row_begin;
  int row_end;
  Sequence q;
  Sequence kv;

  /// Goes to the tile of rows that begins with row `begin`; the sequence has `rows` rows.
  JIT_HOST_DEVICE constexpr void enter_rows(int begin, int rows, int tile_rows) {
    row_begin = begin;
    row_end = begin + tile_rows < rows ? begin + tile_rows : rows;
  }
};

/// A split of a work tile: the keys that one block computes. The end of its rows is left out, to save registers.
struct SplitInfo {
  int batch;
  int kv_head;
  int row_begin;
  Sequence q;
  Sequence kv;
  int split;        ///< index of the split in the work tile, in the order of keys
  int splits;       ///< number of splits of the work tile
  int first_block;  ///< block of the first split, as KeyShares counts blocks
  // Where all blocks of a work tile merge it (split_keys/merge_shares.cuh), else 0:
  bool is_cut;  ///< whether blocks share work tiles of this tile space
  int mergers;  ///< blocks that merge: all of the work tile, or all but the last one if that one goes on
  mutable bool merges;  ///< whether the block merges a share of the work tile, once its split is done
};

/// Stages of the pipeline of splits: the key producer may be ahead of the consumers.
inline constexpr int stages_splits = 3;

/// One span of a split; splits of work tiles with spans are passed on span by span.
struct SpanInfo : SplitInfo {
  WorkTileCuts cuts;  ///< of the work tile
  int span;           ///< counted from key 0 of the sequence
  int split_begin;    ///< first span of the split
  int split_end;
  mutable unsigned ticket;  ///< splits of the work tile that ended before this one; written when it ends
};

/// A split of a work tile whose queries have a list of keys.
struct ListInfo : SplitInfo {
  ListOwner owner;
};

/// The info of a split: SpanInfo if keys are split into spans of `split_keys`.
template <int split_keys>
struct InfoFor {
  using type = SpanInfo;
};
template <>
struct InfoFor<0> {
  using type = SplitInfo;
};
/// The value of `split_keys` that selects ListInfo, for queries with lists of keys.
inline constexpr int by_lists = -1;
template <>
struct InfoFor<by_lists> {
  using type = ListInfo;
};
template <class Config>
using Info = typename InfoFor<has_key_lists<Config> ? by_lists : Config::split_keys>::type;

/// Whether queries are loaded with this info: all spans of a split share them.
template <class Config>
JIT_HOST_DEVICE constexpr bool brings_queries(const Info<Config>& info) {
  if constexpr (Config::split_keys != 0) return info.span <= info.split_begin;
  return true;
}
/// Whether queries are released with this info: no later span of the split needs them.
template <class Config>
JIT_HOST_DEVICE constexpr bool takes_queries(const Info<Config>& info) {
  if constexpr (Config::split_keys != 0) return info.span + 1 >= info.split_end;
  return true;
}

JIT_HOST_DEVICE constexpr int info_bytes(bool has_spans, bool has_lists = false) {
  return static_cast<int>(has_lists ? sizeof(ListInfo) : has_spans ? sizeof(SpanInfo) : sizeof(SplitInfo));
}

/// Tiles of keys of a span.
template <class Config>
inline constexpr int span_tiles = Config::split_keys / Config::tile_kv;

}  // namespace jit
