// Addresses of rows of keys and values: paged, varlen or dense.
#pragma once

#include "base/element.cuh"
#include "base/params.cuh"
#include "base/prelude.cuh"
#include "base/rows.cuh"
#include "jit/options.h"
#include "problem/functor.cuh"
#include "problem/sequences.cuh"
#include "problem/variable_sequences.cuh"

namespace jit {

/// Rows are counted as in VariableSequences::kv. Page tables may hold any numbers.
template <class Config>
class PagedKv {
 public:
  static constexpr bool has_pages = Config::sequences_kv == SequenceKind::paged;

  JIT_DEVICE explicit PagedKv(const AttentionParams& params) : params_(params) {}

  /// The page of a row; 0 without pages.
  JIT_DEVICE int page(int batch, int row) const {
    return VariableSequences<Config>(params_).page(batch, row);
  }
  /// TMA coordinates of a row: its page replaces the batch entry, which is 0 for varlen rows.
  JIT_DEVICE RowPlace place(int batch, int kv_head, int row) const {
    if constexpr (has_pages) return place_in(page(batch, row), kv_head, row);
    return {row, kv_head, Config::sequences_kv == SequenceKind::varlen ? 0 : batch};
  }
  /// Place of a row whose page is known.
  static JIT_DEVICE RowPlace place_in(int page, int kv_head, int row) {
    return {row % maximum(1, Config::page_size), kv_head, page};
  }
  /// Whether a page exists; true without pages.
  JIT_DEVICE bool exists(int page) const {
    return !has_pages || (page >= 0 && page < params_.sequences.pages);
  }

  /// The offset of an existing row of k or v, in elements.
  static JIT_DEVICE long long offset(const TensorStrides& strides, const RowPlace& place) {
    return place.batch * strides.batch + place.seq * strides.seq + place.head * strides.head;
  }

  /// Checks the page of keys [key, key + count) of a sequence, which lie in one page, if arrays are checked and a query
  /// may see one of them; `seen()` returns the range of visible keys.
  template <class Seen>
  JIT_DEVICE void expect(int batch, const Sequence& kv, int key, int count, int page, Seen seen) const {
    if constexpr (Config::checked) {
      const KeyRange keys = seen();
      if (key + count > keys.begin && key < minimum(keys.end, kv.length))
        VariableSequences<Config>(params_).expect_page(batch, kv.begin + key, page);
    }
  }

 private:
  const AttentionParams& params_;
};

/// Whether the place of each row of a tile is looked up.
template <class Config>
inline constexpr bool looks_up_rows = PagedKv<Config>::has_pages || has_key_lists<Config>;

/// Addresses of the rows of a tile of keys or values, or of their scales (one per `rows_together` rows); null for rows
/// that do not exist. `pages` are the pages of the tile's rows or, with lists of keys, their places (KeyLists).
template <class Config, class Element = KvElement<Config>, int rows_together = 1>
struct KvRows {
  static constexpr bool has_pages = PagedKv<Config>::has_pages;
  const Element* first;  ///< first row of the batch entry, or of page 0
  TensorStrides strides;
  int count;         ///< existing rows from the tile's first one on
  int place;         ///< the tile's first row in its sequence or tensor
  const int* pages;  ///< of the tile's rows
  int page_count;    ///< number of pages

  /// Rows from key `k_begin` on of a work tile of one KV head of a batch entry.
  template <class WorkTile>
  JIT_DEVICE KvRows(const AttentionParams& params, const WorkTile& work_tile, int k_begin,
                    const int* tile_pages, const void* data, const TensorStrides& tensor)
      : strides(tensor),
        count(work_tile.kv.length - k_begin),
        place(work_tile.kv.begin + k_begin),
        pages(tile_pages),
        page_count(params.sequences.pages) {
    first = static_cast<const Element*>(data) + work_tile.kv_head * strides.head;
    if (!has_pages) first += work_tile.batch * strides.batch;
  }

  /// Address of a row in a page.
  JIT_DEVICE const Element* operator()(int row) const {
    if constexpr (has_key_lists<Config>) return at_place(row);
    const int page = pages[minimum(row, Config::tile_kv - 1)];
    const bool exists = row < count && page >= 0 && page < page_count;
    const Element* start =
        first + page * strides.batch + (place + row) % Config::page_size / rows_together * strides.seq;
    return exists ? start : nullptr;
  }
  /// Address of a row of a listed key.
  JIT_DEVICE const Element* at_place(int row) const {
    const int at = pages[minimum(row, Config::tile_kv - 1)];
    const int rows_of_page = has_pages ? maximum(1, Config::page_size) : 0x7fffffff;
    const Element* start = first + at / rows_of_page * strides.batch + at % rows_of_page * strides.seq;
    return row < count && at >= 0 ? start : nullptr;  // mutate: RowsOfKeysThatAreNone
  }
  /// The rows, without pages and lists.
  JIT_DEVICE DenseRows<const Element> dense() const { return {first + place * strides.seq, strides.seq}; }
  /// Address of a row, with or without pages.
  JIT_DEVICE const Element* at(int row) const {
    if constexpr (has_pages) {
      return (*this)(row);
    } else {
      // mutate: TokensForBlocks
      return row < count ? first + (place + row) / rows_together * strides.seq : nullptr;
    }
  }
};

}  // namespace jit
