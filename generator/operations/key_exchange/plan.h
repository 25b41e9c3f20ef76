// The copies of an exchange of keys: what each rank gets of the others, in the order in which it waits for it.
#pragma once

#include <cstdint>
#include <vector>

#include <jit/key_exchange.h>

#include "templates/mainloop/arrival_table.cuh"

namespace jit {

/// A copy of keys and values. Its word is that of its place in the list of its rank.
struct KeyCopy {
  int source = 0;        ///< rank
  IndexRange keys = {};  ///< positions; empty: the word alone, which tells that the rank has begun the call
};

/// Copies that `rank` gets: a word of each other rank, then copies, of each source in ascending order, and of all sources in turn, the
/// rank in front first. Each source sends to the ranks behind it in turn, too.
std::vector<KeyCopy> copies_to(const KeyExchangeSpec& spec, const Placement& placement, int rank);

/// Copies that `rank` sends, and their words.
struct SentCopy {
  int target = 0;  ///< rank
  int word = 0;
  IndexRange keys = {};
};
std::vector<SentCopy> copies_from(const KeyExchangeSpec& spec, const Placement& placement, int rank);

/// The pieces of keys of a rank in the order in which its queries visit them.
std::vector<ArrivalPiece> pieces_of(const Placement& placement, int rank, const std::vector<KeyCopy>& copies);

/// The granules of the sequence, as arrival_table.cuh has them: visited by pieces, none twice; behind them 0.
std::vector<ArrivalGranule> granules_of(const Placement& placement, const std::vector<ArrivalPiece>& pieces);

/// Where things lie in buffers. All ranks have the same sizes.
struct KeyExchangeLayout {
  std::int64_t table_rows = 0;   ///< of 16 bytes each, at the beginning
  std::int64_t table_bytes = 0;  ///< rounded up
  std::int64_t key_bytes = 0;    ///< of a row of k
  std::int64_t value_bytes = 0;  ///< of a row of v, which stands behind that of k: one copy takes both
  std::int64_t rows = 0;         ///< of all batch entries

  std::int64_t row_bytes() const { return key_bytes + value_bytes; }
  std::int64_t bytes() const { return table_bytes + 2 * rows * row_bytes(); }
  /// Where a row lies.
  std::int64_t row(unsigned half, std::int64_t row) const {
    return table_bytes + (half * rows + row) * row_bytes();
  }
};
/// Throws Error invalid_argument as key_exchange_bytes does.
KeyExchangeLayout layout_of(const KeyExchangeSpec& spec, const Placement& placement);

/// Byte of the words in the buffer of a rank with so many pieces.
constexpr std::int64_t words_offset(std::int64_t pieces) { return (arrival_header_rows + pieces) * 16; }
/// Row of the first ArrivalGranule there.
constexpr std::int64_t granules_row(std::int64_t pieces, std::int64_t words) {
  return arrival_header_rows + pieces + (2 * words + 3) / 4;
}

}  // namespace jit
