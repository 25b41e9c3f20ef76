// Where the rows of keys and values lie: in pages, behind one another, or an entry beside the other.
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

/// Rows count as those of `kv` of VariableSequences do. What a page table says may be any number.
template <class Config>
class PagedKv {
 public:
  static constexpr bool has_pages = Config::sequences_kv == SequenceKind::paged;

  JIT_DEVICE explicit PagedKv(const AttentionParams& params) : params_(params) {}

  /// The page of a row, where there are pages.
  JIT_DEVICE int page(int batch, int row) const {
    return VariableSequences<Config>(params_).page(batch, row);
  }
  /// The place of a row as TMA counts: its page takes the place of the batch entry; where rows lie behind one another
  /// that is 0.
  JIT_DEVICE RowPlace place(int batch, int kv_head, int row) const {
    if constexpr (has_pages) return place_in(page(batch, row), kv_head, row);
    return {row, kv_head, Config::sequences_kv == SequenceKind::varlen ? 0 : batch};
  }
  /// Place of a row whose page is known.
  static JIT_DEVICE RowPlace place_in(int page, int kv_head, int row) {
    return {row % maximum(1, Config::page_size), kv_head, page};
  }
  /// Whether there is such a page; true without pages.
  JIT_DEVICE bool exists(int page) const {
    return !has_pages || (page >= 0 && page < params_.sequences.pages);
  }

  /// Elements from the first of k or v, whose `strides` these are, to a row that exists.
  static JIT_DEVICE long long offset(const TensorStrides& strides, const RowPlace& place) {
    return place.batch * strides.batch + place.seq * strides.seq + place.head * strides.head;
  }

  /// Looks at the page of keys [key, key + count) of a sequence, which lie in one, where arrays are checked and some
  /// query may see one of them: `seen()` is the range of what queries see.
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

/// Where the rows of a tile of keys, or values, begin, or their scales lie, of which so many rows share one; null for
/// one that does not exist. `pages` are those of the tile's rows, where there are pages; of keys of lists, places (KeyLists).
template <class Config, class Element = KvElement<Config>, int rows_together = 1>
struct KvRows {
  static constexpr bool has_pages = PagedKv<Config>::has_pages;
  const Element* first;  ///< row of the batch entry; of pages, of the first page of all
  TensorStrides strides;
  int count;         ///< rows that there are
  int place;         ///< of the first in its page, plus whole pages
  const int* pages;  ///< of the tile's rows
  int page_count;    ///< that there are

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

  /// Where there are pages.
  JIT_DEVICE const Element* operator()(int row) const {
    if constexpr (has_key_lists<Config>) return at_place(row);
    const int page = pages[minimum(row, Config::tile_kv - 1)];
    const bool exists = row < count && page >= 0 && page < page_count;
    const Element* start =
        first + page * strides.batch + (place + row) % Config::page_size / rows_together * strides.seq;
    return exists ? start : nullptr;
  }
  /// Where there are lists of keys.
  JIT_DEVICE const Element* at_place(int row) const {
    const int at = pages[minimum(row, Config::tile_kv - 1)];
    const int rows_of_page = has_pages ? maximum(1, Config::page_size) : 0x7fffffff;
    const Element* start = first + at / rows_of_page * strides.batch + at % rows_of_page * strides.seq;
    return row < count && at >= 0 ? start : nullptr;  // mutate: RowsOfKeysThatAreNone
  }
  /// Where there are none.
  JIT_DEVICE DenseRows<const Element> dense() const { return {first + place * strides.seq, strides.seq}; }
  /// Where there may be pages.
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
