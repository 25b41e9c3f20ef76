#include "cache/lz4.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace jit {
namespace {

// The format: a token has the number of literals and the length of the match after them, four bits each;
// larger numbers continue in bytes of up to 255.
constexpr std::size_t shortest_match = 4;
constexpr std::size_t largest_offset = 65535;
constexpr std::size_t literals_at_end = 5;
constexpr std::size_t no_match_begins_in_the_last = 12;
constexpr std::size_t largest_in_token = 15;

struct Match {
  std::size_t offset = 0;
  std::size_t length = 0;
};

// Finds earlier bytes equal to those at an offset, by chains of offsets whose next four bytes have equal
// hashes.
class Matches {
 public:
  explicit Matches(std::span<const std::byte> bytes)
      : bytes_(bytes), last_(std::size_t{1} << hash_bits, none), before_(bytes.size(), none) {}

  Match longest_at(std::size_t place) const {
    const std::size_t limit = bytes_.size() - literals_at_end - place;
    Match best;
    std::uint32_t candidate = last_[hash_at(place)];
    for (int i = 0; i < chain_length && candidate != none && place - candidate <= largest_offset; ++i) {
      const auto here = bytes_.begin() + static_cast<std::ptrdiff_t>(place);
      const auto there = bytes_.begin() + static_cast<std::ptrdiff_t>(candidate);
      const auto differs = std::mismatch(here, here + static_cast<std::ptrdiff_t>(limit), there).first;
      if (const auto length = static_cast<std::size_t>(differs - here); length > best.length)
        best = {place - candidate, length};
      candidate = before_[candidate];
    }
    return best.length < shortest_match ? Match{} : best;
  }

  void add(std::size_t place) {
    std::uint32_t& last = last_[hash_at(place)];
    before_[place] = last;
    last = static_cast<std::uint32_t>(place);
  }

 private:
  static constexpr int hash_bits = 16;
  static constexpr int chain_length = 32;
  static constexpr std::uint32_t none = ~std::uint32_t{0};

  std::size_t hash_at(std::size_t place) const {
    std::uint32_t next;
    std::memcpy(&next, bytes_.data() + place, sizeof next);
    return next * 2654435761u >> (32 - hash_bits);
  }

  std::span<const std::byte> bytes_;
  std::vector<std::uint32_t> last_;    // latest offset of each hash
  std::vector<std::uint32_t> before_;  // previous offset with the same hash
};

void add_number(std::vector<std::byte>& to, std::size_t number) {
  if (number < largest_in_token) return;
  for (number -= largest_in_token; number >= 255; number -= 255) to.push_back(std::byte{255});
  to.push_back(static_cast<std::byte>(number));
}

void add_sequence(std::vector<std::byte>& to, std::span<const std::byte> literals, Match match) {
  const std::size_t length = match.length == 0 ? 0 : match.length - shortest_match;
  to.push_back(static_cast<std::byte>(std::min(literals.size(), largest_in_token) << 4 |
                                      std::min(length, largest_in_token)));
  add_number(to, literals.size());
  to.insert(to.end(), literals.begin(), literals.end());
  if (match.length == 0) return;
  to.push_back(static_cast<std::byte>(match.offset & 255));
  to.push_back(static_cast<std::byte>(match.offset >> 8));
  add_number(to, length);
}

// Reads a block.
class BlockReader {
 public:
  explicit BlockReader(std::span<const std::byte> block) : rest_(block) {}

  bool at_end() const { return rest_.empty(); }

  std::optional<std::span<const std::byte>> take(std::size_t count) {
    if (count > rest_.size()) return std::nullopt;
    const auto taken = rest_.first(count);
    rest_ = rest_.subspan(count);
    return taken;
  }

  std::optional<std::size_t> byte() {
    const auto taken = take(1);
    if (!taken) return std::nullopt;
    return std::to_integer<std::size_t>(taken->front());
  }

  // A number whose token bits are `begin`, with its further bytes.
  std::optional<std::size_t> number(std::size_t begin) {
    std::size_t number = begin;
    for (std::size_t more = begin < largest_in_token ? 0 : 255; more == 255; number += more) {
      const auto next = byte();
      if (!next) return std::nullopt;
      more = *next;
    }
    return number;
  }

 private:
  std::span<const std::byte> rest_;
};

}  // namespace

std::vector<std::byte> compress(std::span<const std::byte> bytes) {
  std::vector<std::byte> block;
  Matches matches(bytes);
  const std::size_t end =
      bytes.size() < no_match_begins_in_the_last ? 0 : bytes.size() - no_match_begins_in_the_last;
  std::size_t place = 0, written = 0;
  while (place < end) {
    const Match match = matches.longest_at(place);
    const std::size_t next = place + std::max<std::size_t>(match.length, 1);
    if (match.length > 0) {
      add_sequence(block, bytes.subspan(written, place - written), match);
      written = next;
    }
    for (; place < next; ++place) {
      if (place < end) matches.add(place);
    }
  }
  add_sequence(block, bytes.subspan(written), {});
  return block;
}

std::optional<std::vector<std::byte>> decompress(std::span<const std::byte> block) {
  std::vector<std::byte> bytes;
  bytes.reserve(3 * block.size());
  BlockReader reader(block);
  while (const auto token = reader.byte()) {
    const auto count = reader.number(*token >> 4);
    const auto literals = count ? reader.take(*count) : std::nullopt;
    if (!literals) return std::nullopt;
    bytes.insert(bytes.end(), literals->begin(), literals->end());
    const std::size_t of_match = *token & largest_in_token;
    if (reader.at_end()) return of_match == 0 ? std::optional(std::move(bytes)) : std::nullopt;
    const auto low = reader.byte(), high = reader.byte();
    const auto length = reader.number(of_match);
    if (!low || !high || !length) return std::nullopt;
    const std::size_t offset = *low | *high << 8, place = bytes.size();
    if (offset == 0 || offset > place) return std::nullopt;
    bytes.resize(place + *length + shortest_match);
    for (std::size_t i = place; i < bytes.size(); ++i) bytes[i] = bytes[i - offset];
  }
  return std::nullopt;  // literals must end a block
}

}  // namespace jit
