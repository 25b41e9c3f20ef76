// Where the rows of requests lie in tensors: dense ones, of which each may use some, varlen ones, and pages.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include <jit/spec.h>

#include "tests/support/arena.h"

namespace jit::testing {

/// The queries, or the keys, of all requests.
struct RequestRows {
  SequenceKind kind = SequenceKind::dense;
  std::int64_t entries = 1;     ///< batch entries of dense tensors, pages, or 1
  std::int64_t per_entry = 1;   ///< rows of each of these
  std::int64_t room = 1;        ///< rows that the longest sequence could have, as masks and scores count them
  std::int64_t longest = 1;     ///< rows that places have for a request
  std::vector<int> lengths;     ///< rows of each request; empty: all of a dense tensor
  std::vector<int> boundaries;  ///< of varlen sequences
  std::vector<int> table;       ///< (requests, pages of a request)
  std::int64_t table_width = 0;

  /// `spare` rows of nobody lie behind each varlen sequence.
  static RequestRows dense(int batch, int seqlen, const std::vector<int>& lengths);
  static RequestRows varlen(int longest, const std::vector<int>& lengths, int spare);
  /// Pages in random order, some of them nobody's; entries of the table that are not needed are no pages.
  static RequestRows paged(int longest, const std::vector<int>& lengths, int page_size,
                           std::mt19937_64& random);

  /// The rows of each request in a tensor (entries, per_entry, …). The tensor is the one that calls are
  /// given, without its first dimension where rows are varlen. Where `together` rows share an entry, the
  /// tensor has fewer of them.
  Place of(const Place& tensor, std::int64_t together = 1) const;

  /// Whether boundaries alone do not tell how long varlen sequences are.
  bool has_gaps() const;

 private:
  std::int64_t row(std::size_t request, std::int64_t index) const;  // among those of all entries
};

}  // namespace jit::testing
