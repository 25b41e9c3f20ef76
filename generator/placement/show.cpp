// Draws a placement as text.
#include <jit/placement.h>

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "generator/placement/placement_error.h"

namespace jit {
namespace {

std::string line_of(const Placement& placement, int rank, std::int64_t columns) {
  const std::int64_t count = placement.work.granules();
  std::vector<char> is_needed(static_cast<std::size_t>(count));
  for (const IndexRange& range : placement.needs[static_cast<std::size_t>(rank)])
    std::fill(is_needed.begin() + range.begin, is_needed.begin() + range.end, 1);
  std::string line;
  for (std::int64_t column = 0; column < columns; ++column) {
    bool has_own = false, has_others = false, has_needed = false;
    for (std::int64_t i = column * count / columns; i < (column + 1) * count / columns; ++i) {
      const bool is_own = placement.owners[static_cast<std::size_t>(i)] == rank;
      has_own |= is_own;
      has_others |= !is_own;
      has_needed |= !is_own && is_needed[static_cast<std::size_t>(i)] != 0;
    }
    line += has_own ? (has_others ? '+' : '#') : has_needed ? '-' : '.';
  }
  return line;
}

}  // namespace

std::string Placement::show(int columns) const {
  if (columns < 1) refuse_placement("columns", fmt::format("is {}; a line has at least one", columns));
  const std::int64_t shown = std::min<std::int64_t>(columns, work.granules());
  const double mean = std::accumulate(loads.begin(), loads.end(), 0.0) / ranks();
  std::string text = fmt::format("{} tokens in granules of {}, {} ranks, {}: slowest/mean {:.3f}\n",
                                 work.seqlen, work.granule, ranks(), to_string(mode), imbalance());
  for (int rank = 0; rank < ranks(); ++rank)
    text += fmt::format("{:>4} {}  {} tokens, load {:.3f}, needs {} keys of others\n", rank,
                        line_of(*this, rank, shown), rows(rank),
                        mean > 0 ? loads[static_cast<std::size_t>(rank)] / mean : 1.0, remote_rows(rank));
  return text;
}

}  // namespace jit
