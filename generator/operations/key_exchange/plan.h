// The copies of a key exchange: what each rank receives, in the order in which it waits.
#pragma once

#include <cstdint>
#include <vector>

#include <jit/key_exchange.h>

#include "templates/mainloop/arrival_table.cuh"

namespace jit {

/// A copy of keys and values. Its arrival word has its index in the rank's list.
struct KeyCopy {
  int source = 0;        ///< rank
  IndexRange keys = {};  ///< positions; empty: only the word, which says that the rank has begun the call
};

/// Copies that `rank` receives: a word per other rank, then keys, ascending per source, alternating between
/// sources from the preceding rank on. Sources likewise alternate between the ranks after them.
std::vector<KeyCopy> copies_to(const KeyExchangeSpec& spec, const Placement& placement, int rank);

/// A copy that `rank` sends, and its word.
struct SentCopy {
  int target = 0;  ///< rank
  int word = 0;
  IndexRange keys = {};
};
std::vector<SentCopy> copies_from(const KeyExchangeSpec& spec, const Placement& placement, int rank);

/// A rank's pieces of keys, in the order in which its queries visit them.
std::vector<ArrivalPiece> pieces_of(const Placement& placement, int rank, const std::vector<KeyCopy>& copies);

/// The granules of the sequence for arrival_table.cuh: in the order of pieces, without repetition, padded by
/// 0.
std::vector<ArrivalGranule> granules_of(const Placement& placement, const std::vector<ArrivalPiece>& pieces);

/// Layout of the buffers, equal for all ranks.
struct KeyExchangeLayout {
  std::int64_t table_rows = 0;   ///< rows of 16 bytes at the beginning
  std::int64_t table_bytes = 0;  ///< rounded up
  std::int64_t key_bytes = 0;    ///< of k's part of a row
  std::int64_t value_bytes = 0;  ///< of v's part of a row, which follows k's, so that one copy takes both
  std::int64_t rows = 0;         ///< of all batch entries

  std::int64_t row_bytes() const { return key_bytes + value_bytes; }
  std::int64_t bytes() const { return table_bytes + 2 * rows * row_bytes(); }
  /// Offset of a row.
  std::int64_t row(unsigned half, std::int64_t row) const {
    return table_bytes + (half * rows + row) * row_bytes();
  }
};
/// Throws the errors of key_exchange_bytes.
KeyExchangeLayout layout_of(const KeyExchangeSpec& spec, const Placement& placement);

/// Offset of the words in the buffer of a rank with this many pieces.
constexpr std::int64_t words_offset(std::int64_t pieces) { return (arrival_header_rows + pieces) * 16; }
/// Row of the first ArrivalGranule.
constexpr std::int64_t granules_row(std::int64_t pieces, std::int64_t words) {
  return arrival_header_rows + pieces + (2 * words + 3) / 4;
}

}  // namespace jit
