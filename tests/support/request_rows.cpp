#include "tests/support/request_rows.h"

#include <algorithm>
#include <numeric>

namespace jit::testing {

RequestRows RequestRows::dense(int batch, int seqlen, const std::vector<int>& lengths) {
  RequestRows rows;
  rows.entries = batch;
  rows.per_entry = rows.room = rows.longest = seqlen;
  rows.lengths = lengths;
  return rows;
}

RequestRows RequestRows::varlen(int longest, const std::vector<int>& lengths, int spare) {
  RequestRows rows;
  rows.kind = SequenceKind::varlen;
  rows.longest = longest;
  rows.lengths = lengths;
  rows.boundaries = {0};
  for (const int length : lengths) rows.boundaries.push_back(rows.boundaries.back() + length + spare);
  rows.per_entry = rows.room = rows.boundaries.back() + spare;
  return rows;
}

bool RequestRows::has_gaps() const {
  for (std::size_t i = 0; i + 1 < boundaries.size(); ++i)
    if (boundaries[i + 1] - boundaries[i] != lengths[i]) return true;
  return false;
}

RequestRows RequestRows::paged(int longest, const std::vector<int>& lengths, int page_size,
                               std::mt19937_64& random) {
  RequestRows rows;
  rows.kind = SequenceKind::paged;
  rows.longest = longest;
  rows.lengths = lengths;
  rows.table_width = std::max(1, (longest + page_size - 1) / page_size);
  const auto requests = static_cast<std::int64_t>(lengths.size());
  constexpr std::int64_t of_nobody = 3;
  rows.entries = requests * rows.table_width + of_nobody;
  rows.per_entry = page_size;
  rows.room = rows.table_width * page_size;
  std::vector<int> pages(static_cast<std::size_t>(rows.entries));
  std::iota(pages.begin(), pages.end(), 0);
  std::shuffle(pages.begin(), pages.end(), random);
  rows.table.assign(pages.begin(), pages.end() - of_nobody);
  for (std::int64_t b = 0; b < requests; ++b) {
    const std::int64_t needed = (lengths[static_cast<std::size_t>(b)] + page_size - 1) / page_size;
    std::fill(rows.table.begin() + b * rows.table_width + needed,
              rows.table.begin() + (b + 1) * rows.table_width, b % 2 == 0 ? -1 : 1 << 30);
  }
  return rows;
}

Place RequestRows::of(const Place& tensor, std::int64_t together) const {
  if (kind == SequenceKind::dense && lengths.empty()) return tensor;
  Place place = tensor;
  Place stored = tensor;
  if (kind == SequenceKind::varlen) {
    --stored.rank;
    std::copy(tensor.shape + 1, tensor.shape + max_rank, stored.shape);
    std::copy(tensor.strides + 1, tensor.strides + max_rank, stored.strides);
  }
  place.stored = std::make_shared<const Place>(stored);
  place.shape[0] = static_cast<std::int64_t>(lengths.size());
  place.shape[1] = longest;
  for (std::size_t request = 0; request < lengths.size(); ++request) {
    for (std::int64_t index = 0; index < longest; ++index) {
      const std::int64_t at = row(request, index);
      place.row_at.push_back(at < 0 ? Place::no_row
                                    : at / per_entry * tensor.strides[0] +
                                          at % per_entry / together * tensor.strides[1]);
    }
  }
  return place;
}

std::int64_t RequestRows::row(std::size_t request, std::int64_t index) const {
  if (index >= lengths[request]) return -1;
  const auto entry = static_cast<std::int64_t>(request);
  if (kind == SequenceKind::dense) return entry * per_entry + index;
  if (kind == SequenceKind::varlen) return boundaries[request] + index;
  const int page = table[static_cast<std::size_t>(entry * table_width + index / per_entry)];
  return page * per_entry + index % per_entry;
}

}  // namespace jit::testing
