// Sets of granules, as bits of 64-bit words.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <jit/placement.h>

namespace jit {

/// A subset of `granules` granules.
class GranuleSet {
 public:
  explicit GranuleSet(std::int64_t granules = 0) : words_(static_cast<std::size_t>(granules + 63) / 64) {}

  void clear() { std::fill(words_.begin(), words_.end(), 0); }

  void add(const IndexRange& range) {
    if (range.begin >= range.end) return;
    const std::size_t first = word_of(range.begin), last = word_of(range.end - 1);
    const std::uint64_t from = ~std::uint64_t{0} << (range.begin % 64),
                        to = ~std::uint64_t{0} >> (63 - (range.end - 1) % 64);
    if (first == last) {
      words_[first] |= from & to;
      return;
    }
    words_[first] |= from;
    std::fill(words_.begin() + static_cast<std::ptrdiff_t>(first) + 1,
              words_.begin() + static_cast<std::ptrdiff_t>(last), ~std::uint64_t{0});
    words_[last] |= to;
  }

  /// The set as ascending, disjoint ranges.
  std::vector<IndexRange> ranges() const {
    std::vector<IndexRange> ranges;
    for (std::int64_t begin = next(0, 0); begin < size();) {
      const std::int64_t end = next(begin, ~std::uint64_t{0});
      ranges.push_back({begin, end});
      begin = next(end, 0);
    }
    return ranges;
  }

  const std::vector<std::uint64_t>& words() const { return words_; }

 private:
  static std::size_t word_of(std::int64_t granule) { return static_cast<std::size_t>(granule / 64); }
  std::int64_t size() const { return static_cast<std::int64_t>(words_.size()) * 64; }

  // The next granule in the set, or with flipped words not in it, from `granule` on; size() if there is none.
  std::int64_t next(std::int64_t granule, std::uint64_t flipped) const {
    if (granule >= size()) return size();
    std::size_t word = word_of(granule);
    std::uint64_t bits = (words_[word] ^ flipped) & (~std::uint64_t{0} << (granule % 64));
    while (bits == 0) {
      if (++word == words_.size()) return size();
      bits = words_[word] ^ flipped;
    }
    return static_cast<std::int64_t>(word) * 64 + std::countr_zero(bits);
  }

  std::vector<std::uint64_t> words_;
};

}  // namespace jit
