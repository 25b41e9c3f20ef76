// Costs and needs of granules of queries, computed from a mask's row ranges, document lengths, or a table of
// blocks.
#include <jit/placement.h>

#include <algorithm>
#include <numeric>
#include <optional>

#include <fmt/format.h>
#include <jit/error.h>

#include "generator/functors/row_keys.h"
#include "generator/placement/placement_error.h"

namespace jit {
namespace {

constexpr int tile = 128;  // kernels compute whole tiles of this many keys and at most this many queries

std::int64_t rounded_up(std::int64_t number, std::int64_t step) { return (number + step - 1) / step; }

void check_sizes(std::int64_t seqlen, int granule) {
  constexpr int step = 16, most = 1 << 20;
  if (seqlen < 1 || seqlen > (std::int64_t{1} << 31) - 1)
    refuse_placement("seqlen", fmt::format("is {}; it must be from 1 to 2^31 − 1", seqlen));
  if (granule < step || granule > most || granule % step != 0)
    refuse_placement("granule", fmt::format("is {}; it must be a multiple of {} from {} to {}", granule, step,
                                            step, most));
}

/// Ranges of visible keys of consecutive rows, as positions in the sequence.
class RowsOfMask {
 public:
  RowsOfMask(const Mask& mask, std::int64_t seqlen, std::span<const std::int64_t> documents)
      : mask_(mask), lengths_(documents.begin(), documents.end()) {
    if (lengths_.empty()) lengths_ = {seqlen};
    std::int64_t sum = 0;
    for (const std::int64_t length : lengths_) {
      if (length < 0)
        refuse_placement("documents", fmt::format("has the length {}; lengths are at least 0", length));
      sum += length;
    }
    if (sum != seqlen)
      refuse_placement(
          "documents",
          fmt::format("have {} tokens together, and seqlen is {}; they must be equal", sum, seqlen));
    open(0);
  }

  /// Keys of the rows from `row` on, at most `count`, that move alike; called with ascending rows.
  KeysOfRows from(std::int64_t row, std::int64_t count) {
    while (row >= begin_ + length_) open(document_ + 1);
    if (row >= first_ + rows_.rows) read(row);
    const std::int64_t i = row - first_;
    return {{rows_.keys.begin + i * rows_.begin_step, rows_.keys.end + i * rows_.end_step},
            rows_.begin_step,
            rows_.end_step,
            std::min(count, rows_.rows - i)};
  }

 private:
  void open(std::size_t document) {
    begin_ += length_;
    document_ = document;
    length_ = lengths_[document];
    first_ = begin_;
    rows_.rows = 0;
  }

  void read(std::int64_t row) {
    first_ = row;
    rows_ = {{begin_, begin_ + length_}, 0, 0, begin_ + length_ - row};
    if (mask_ == Mask()) return;
    const Extents sizes{.batch = 1, .seqlen_q = length_, .seqlen_kv = length_, .heads_q = 1, .heads_kv = 1};
    const std::optional<KeysOfRows> rows = row_keys_from(mask_, sizes, row - begin_);
    if (!rows)
      refuse_placement("mask",
                       fmt::format("{} keeps keys that do not follow from positions alone; give a table of "
                                   "its blocks",
                                   mask_.to_string()));
    rows_ = {{rows->keys.begin + begin_, rows->keys.end + begin_},
             rows->begin_step,
             rows->end_step,
             std::min(rows->rows, rows_.rows)};
  }

  const Mask& mask_;
  std::vector<std::int64_t> lengths_;
  std::size_t document_ = 0;
  std::int64_t begin_ = 0, length_ = 0;
  std::int64_t first_ = 0;  // row of rows_
  KeysOfRows rows_{};
};

/// Calls add() with the ranges of keys that rows see: a joint one if ranges move by 0 or 1 per row, else one
/// per row.
template <class Add>
void for_each_range(const KeysOfRows& rows, const Add& add) {
  const auto is_small = [](std::int64_t step) { return step == 0 || step == 1; };
  if (rows.keys.begin >= rows.keys.end) return;
  if (is_small(rows.begin_step) && is_small(rows.end_step)) {
    add(IndexRange{rows.keys.begin, rows.keys.end + (rows.rows - 1) * rows.end_step});
    return;
  }
  for (std::int64_t i = 0; i < rows.rows; ++i)
    add(IndexRange{rows.keys.begin + i * rows.begin_step, rows.keys.end + i * rows.end_step});
}

/// Appends a range unless it repeats the last one, as those of neighboring rows often do.
void add_range(std::vector<IndexRange>& ranges, IndexRange range) {
  if (ranges.empty() || ranges.back() != range) ranges.push_back(range);
}

/// Sorts ranges and merges adjacent and overlapping ones.
void join(std::vector<IndexRange>& ranges) {
  std::sort(ranges.begin(), ranges.end(),
            [](const IndexRange& a, const IndexRange& b) { return a.begin < b.begin; });
  std::size_t count = 0;
  for (const IndexRange& range : ranges) {
    if (count > 0 && range.begin <= ranges[count - 1].end)
      ranges[count - 1].end = std::max(ranges[count - 1].end, range.end);
    else
      ranges[count++] = range;
  }
  ranges.resize(count);
}

std::int64_t total(const std::vector<IndexRange>& ranges) {
  return std::accumulate(
      ranges.begin(), ranges.end(), std::int64_t{0},
      [](std::int64_t sum, const IndexRange& range) { return sum + range.end - range.begin; });
}

void append(PlacementWork& work, double cost, const std::vector<IndexRange>& needs) {
  work.costs.push_back(cost);
  work.needs.insert(work.needs.end(), needs.begin(), needs.end());
  work.first.push_back(static_cast<std::int64_t>(work.needs.size()));
}

}  // namespace

void refuse_placement(std::string_view field, const std::string& message) {
  throw Error(ErrorCode::invalid_argument, "place", std::string(field),
              fmt::format("{}: {}", field, message));
}

std::span<const IndexRange> PlacementWork::needs_of(std::int64_t granule_of_queries) const {
  const auto i = static_cast<std::size_t>(granule_of_queries);
  return {needs.data() + first[i], static_cast<std::size_t>(first[i + 1] - first[i])};
}

PlacementWork work_of_mask(const Mask& mask, std::int64_t seqlen, int granule,
                           std::span<const std::int64_t> documents) {
  check_sizes(seqlen, granule);
  RowsOfMask rows(mask, seqlen, documents);
  PlacementWork work{.seqlen = seqlen, .granule = granule, .first = {0}};
  std::vector<IndexRange> tiles, needs;
  for (std::int64_t begin = 0; begin < seqlen; begin += granule) {
    const std::int64_t end = std::min(begin + granule, seqlen);
    double cost = 0;
    needs.clear();
    for (std::int64_t row = begin; row < end;) {
      const std::int64_t tile_begin = row, tile_end = std::min(row + tile, end);
      tiles.clear();
      while (row < tile_end) {
        const KeysOfRows alike = rows.from(row, tile_end - row);
        row += alike.rows;
        for_each_range(alike, [&](const IndexRange& keys) {
          add_range(tiles, {keys.begin / tile, rounded_up(keys.end, tile)});
          add_range(needs, {keys.begin / granule, rounded_up(keys.end, granule)});
        });
      }
      join(tiles);
      cost += static_cast<double>(total(tiles) * tile * (tile_end - tile_begin));
    }
    join(needs);
    append(work, cost, needs);
  }
  return work;
}

PlacementWork work_of_blocks(std::span<const std::uint8_t> classes, std::int64_t seqlen, int granule,
                             double partial_weight) {
  check_sizes(seqlen, granule);
  if (!(partial_weight > 0) || partial_weight > 1e6)
    refuse_placement("partial_weight",
                     fmt::format("is {}; it must be positive, and at most 10^6", partial_weight));
  const std::int64_t side = rounded_up(seqlen, granule);
  if (static_cast<std::int64_t>(classes.size()) != side * side)
    refuse_placement("block_table", fmt::format("has {} blocks; {} tokens in granules of {} have {} · {}",
                                                classes.size(), seqlen, granule, side, side));
  PlacementWork work{.seqlen = seqlen, .granule = granule, .first = {0}};
  std::vector<IndexRange> needs;
  for (std::int64_t row = 0; row < side; ++row) {
    double blocks = 0;
    needs.clear();
    for (std::int64_t column = 0; column < side; ++column) {
      const int kind = classes[static_cast<std::size_t>(row * side + column)];
      if (kind == 0) continue;
      if (kind > 2)
        refuse_placement("block_table",
                         fmt::format("has the class {}; classes are 0 (empty), 1 (partial), 2 (full)", kind));
      blocks += kind == 1 ? partial_weight : 1;
      if (!needs.empty() && needs.back().end == column)
        needs.back().end = column + 1;
      else
        needs.push_back({column, column + 1});
    }
    const std::int64_t queries = std::min<std::int64_t>(granule, seqlen - row * granule);
    append(work, blocks * static_cast<double>(granule * queries), needs);
  }
  return work;
}

}  // namespace jit
