// Costs and needs of granules of queries: from row ranges of a mask, from lengths of documents, or from a table of blocks.
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

constexpr int tile = 128;  // kernels compute whole tiles: of this many keys, and at most so many queries

std::int64_t rounded_up(std::int64_t number, std::int64_t step) { return (number + step - 1) / step; }

void check_sizes(std::int64_t seqlen, int granule) {
  constexpr int step = 16, most = 1 << 20;
  if (seqlen < 1 || seqlen > (std::int64_t{1} << 31) - 1)
    refuse_placement("seqlen", fmt::format("is {}; it must be from 1 to 2^31 − 1", seqlen));
  if (granule < step || granule > most || granule % step != 0)
    refuse_placement("granule", fmt::format("is {}; it must be a multiple of {} from {} to {}", granule, step,
                                            step, most));
}

/// Keys that are seen, in the sequence, of a row; rows come in ascending order.
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

  KeyRange at(std::int64_t row) {
    while (row >= begin_ + length_) open(document_ + 1);
    if (mask_ == Mask()) return {begin_, begin_ + length_};
    const Extents sizes{.batch = 1, .seqlen_q = length_, .seqlen_kv = length_, .heads_q = 1, .heads_kv = 1};
    const std::optional<KeyRange> keys = row_keys(mask_, sizes, row - begin_);
    if (!keys)
      refuse_placement("mask",
                       fmt::format("{} keeps keys that do not follow from positions alone; give a table of "
                                   "its blocks",
                                   mask_.to_string()));
    return {keys->begin + begin_, keys->end + begin_};
  }

 private:
  void open(std::size_t document) {
    begin_ += length_;
    document_ = document;
    length_ = lengths_[document];
  }

  const Mask& mask_;
  std::vector<std::int64_t> lengths_;
  std::size_t document_ = 0;
  std::int64_t begin_ = 0, length_ = 0;
};

void add_range(std::vector<IndexRange>& ranges, IndexRange range) {
  if (range.begin < range.end) ranges.push_back(range);
}

/// Sorts ranges, and joins those that touch.
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
      for (; row < tile_end; ++row) {
        const KeyRange keys = rows.at(row);
        if (keys.begin >= keys.end) continue;
        add_range(tiles, {keys.begin / tile, rounded_up(keys.end, tile)});
        add_range(needs, {keys.begin / granule, rounded_up(keys.end, granule)});
        if (tiles.size() > 1 && tiles.back() == tiles[tiles.size() - 2]) tiles.pop_back();
        if (needs.size() > 1 && needs.back() == needs[needs.size() - 2]) needs.pop_back();
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
