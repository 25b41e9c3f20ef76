// A row of scores, of which some columns are visible, and the order of its scores.
#pragma once

#include "base/prelude.cuh"
#include "ptx/math.cuh"
#include "top_k/params.cuh"

namespace jit {

/// The key of no candidate: that of −infinity.
inline constexpr unsigned no_key = 0;
/// Less than that of every number.
inline constexpr unsigned nan_key = 1;

/// An unsigned number that is larger where the score is; −0 and 0 are equal.
JIT_DEVICE unsigned key_of(float score) {
  unsigned bits = __float_as_uint(score);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return nan_key;  // mutate: NanIsTheLargest
  if (bits == 0x80000000u) bits = 0;                       // mutate: NegativeZeroIsLess
  if (bits == 0xff800000u) return no_key;                  // mutate: MinusInfinityIsChosen
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

/// The score of a number's key.
JIT_DEVICE float score_of(unsigned key) {
  return __uint_as_float((key & 0x80000000u) != 0 ? key ^ 0x80000000u : ~key);
}

/// A key, and how many of those equal to it are chosen, besides all that exceed it.
struct Threshold {
  unsigned key;
  int ties;
};

/// A row, and what it is asked for: the columns [begin, free_begin) and [free_end, end) are chosen whatever their scores, and
/// `wanted` of those between.
template <class Config>
struct TopKRow {
  using Element = typename Config::Element;

  int row;
  int head;
  const Element* scores;
  int begin;
  int free_begin;
  int free_end;
  int end;
  int wanted;

  JIT_DEVICE TopKRow(const TopKParams& params, int unit)
      : row(unit / params.heads),
        head(unit % params.heads),
        scores(static_cast<const Element*>(params.scores) + row * params.score_row +
               head * params.score_head) {
    begin = params.starts == nullptr ? 0 : minimum(maximum(params.starts[row], 0), params.columns);
    end = params.ends == nullptr ? params.columns : minimum(params.ends[row], params.columns);
    end = maximum(end, begin);
    free_begin = minimum(begin + Config::init_blocks, end);
    free_end = maximum(end - Config::local_blocks, free_begin);
    wanted = Config::k - (end - begin - (free_end - free_begin));
  }

  JIT_DEVICE unsigned key(int column) const { return key_of(to_float(scores[column])); }
  JIT_DEVICE bool is_free(int column) const { return column >= free_begin && column < free_end; }
  JIT_DEVICE bool is_forced(int column) const { return column >= begin && column < end && !is_free(column); }
};

/// The number that stands for a column: itself, or its slot, −1 where there is no page for it.
template <class Config>
JIT_DEVICE int index_of(const TopKParams& params, int row, int column) {
  if constexpr (Config::page_size == 0) {
    return column;
  } else {
    const int page = column / Config::page_size;
    if (page >= params.pages) return -1;  // mutate: PagesBehindTheTable
    const int slot_page = params.page_table[row / params.rows_per_entry * params.table_stride + page];
    constexpr int most_pages = 0x7fffffff / Config::page_size;
    if (slot_page < 0 || slot_page >= most_pages) return -1;
    return slot_page * Config::page_size + column % Config::page_size;
  }
}

template <class Config>
JIT_DEVICE int* indices_of(const TopKParams& params, const TopKRow<Config>& row) {
  return params.indices + row.row * params.index_row + row.head * params.index_head;
}
template <class Config>
JIT_DEVICE int* count_of(const TopKParams& params, const TopKRow<Config>& row) {
  return params.counts + row.row * params.count_row + row.head * params.count_head;
}

}  // namespace jit
