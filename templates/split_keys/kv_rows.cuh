// Where the rows of a tile of keys, or values, lie in global memory, in pages or without.
#pragma once

#include "base/element.cuh"
#include "base/params.cuh"
#include "base/prelude.cuh"
#include "base/rows.cuh"
#include "jit/options.h"
#include "split_keys/split_info.cuh"

namespace jit {

/// Where the rows of keys, or values, of a step begin, or their scales lie, of which so many rows share one; null for one that
/// does not exist.
/// `pages` are those of the tile's rows, where there are pages.
template <class Config, class Element = KvElement<Config>, int rows_together = 1>
struct KvRows {
  static constexpr bool has_pages = Config::sequences_kv == SequenceKind::paged;
  const Element* first;  ///< row of the batch entry; of pages, of the first page of all
  TensorStrides strides;
  int count;         ///< rows that there are
  int place;         ///< of the first in its page, plus whole pages
  const int* pages;  ///< of the tile's rows
  int page_count;    ///< that there are

  __device__ __forceinline__ KvRows(const AttentionParams& params, const SplitInfo& split, int k_begin,
                                    const int* tile_pages, const void* data, const TensorStrides& tensor)
      : strides(tensor),
        count(split.seqlen_kv - k_begin),
        place(split.kv_begin + k_begin),
        pages(tile_pages),
        page_count(params.sequences.pages) {
    first = static_cast<const Element*>(data) + split.kv_head * strides.head;
    if (!has_pages) first += split.batch * strides.batch;
  }

  /// Where there are pages.
  __device__ __forceinline__ const Element* operator()(int row) const {
    const int page = pages[minimum(row, Config::tile_kv - 1)];
    const bool exists = row < count && page >= 0 && page < page_count;
    const Element* start =
        first + page * strides.batch + (place + row) % Config::page_size / rows_together * strides.seq;
    return exists ? start : nullptr;
  }
  /// Where there are none.
  __device__ __forceinline__ DenseRows<const Element> dense() const {
    return {first + place * strides.seq, strides.seq};
  }
  /// Where there may be pages.
  __device__ __forceinline__ const Element* at(int row) const {
    if constexpr (has_pages) {
      return (*this)(row);
    } else {
      // mutate: TokensForBlocks
      return row < count ? first + (place + row) / rows_together * strides.seq : nullptr;
    }
  }
};

}  // namespace jit
