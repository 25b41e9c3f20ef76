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

  /// Goes to the tile that begins with this row, of `rows` of the sequence.
  JIT_HOST_DEVICE constexpr void enter_rows(int begin, int rows, int tile_rows) {
    row_begin = begin;
    row_end = begin + tile_rows < rows ? begin + tile_rows : rows;
  }
};

/// A split of a work tile: some of its keys, those of one block. Where its rows end is not kept: it would cost
/// registers.
struct SplitInfo {
  int batch;
  int kv_head;
  int row_begin;
  Sequence q;
  Sequence kv;
  int split;        ///< which of the work tile's splits, in the order of keys
  int splits;       ///< that the work tile has
  int first_block;  ///< whose the first split is, as KeyShares counts them
  // Where all blocks of a work tile merge it (split_keys/merge_shares.cuh), else 0:
  bool is_cut;  ///< whether blocks share work tiles of this tile space
  int mergers;  ///< of the work tile's blocks, those from the first one on that have nothing to do behind it
  mutable bool merges;  ///< whether the block merges a share of the work tile, once its split is done
};

/// Splits that are kept: the key producer may be ahead of the one that consumers compute.
inline constexpr int stages_splits = 3;

/// One span of a split. Splits of work tiles are recorded span by span.
struct SpanInfo : SplitInfo {
  WorkTileCuts cuts;  ///< of the work tile
  int span;           ///< counted from key 0 of the sequence
  int split_begin;    ///< first span of the split
  int split_end;
  mutable unsigned ticket;  ///< how many splits of the work tile were done before, once the split is
};

/// A split of a work tile whose queries have a list of keys.
struct ListInfo : SplitInfo {
  ListOwner owner;
};

/// Info of a split where keys are summed in spans of `split_keys`, and where they are not.
template <int split_keys>
struct InfoFor {
  using type = SpanInfo;
};
template <>
struct InfoFor<0> {
  using type = SplitInfo;
};
/// Info where queries have lists of keys.
inline constexpr int by_lists = -1;
template <>
struct InfoFor<by_lists> {
  using type = ListInfo;
};
template <class Config>
using Info = typename InfoFor<has_key_lists<Config> ? by_lists : Config::split_keys>::type;

/// Whether queries come with what is recorded: spans of a split have the same.
template <class Config>
JIT_HOST_DEVICE constexpr bool brings_queries(const Info<Config>& info) {
  if constexpr (Config::split_keys != 0) return info.span <= info.split_begin;
  return true;
}
/// Whether nothing behind it has them.
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
