#include "generator/program/inflate.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace jit {
namespace {

constexpr int longest_code = 15;
constexpr std::size_t end_of_block = 256;

// The bits of a stream, lowest of each byte first, followed by zeros.
class BitReader {
 public:
  explicit BitReader(std::string_view stream) : stream_(stream) {}

  std::uint32_t peek(int count) const {
    const std::size_t byte = std::min(place_ / 8, stream_.size());
    std::uint64_t word = 0;
    if (stream_.size() - byte >= sizeof word) {
      std::memcpy(&word, stream_.data() + byte, sizeof word);
    } else {
      std::memcpy(&word, stream_.data() + byte, stream_.size() - byte);
    }
    return static_cast<std::uint32_t>(word >> place_ % 8) & ((1u << count) - 1);
  }

  void skip(int count) { place_ += static_cast<std::size_t>(count); }

  std::uint32_t take(int count) {
    const std::uint32_t bits = peek(count);
    skip(count);
    return bits;
  }

  // The next bytes from the next byte boundary on; fewer at the end of the stream.
  std::string_view take_bytes(std::size_t count) {
    const std::size_t byte = (place_ + 7) / 8;
    const std::string_view bytes = stream_.substr(std::min(byte, stream_.size()), count);
    place_ = 8 * (byte + bytes.size());
    return bytes;
  }

  bool past_end() const { return place_ > 8 * stream_.size(); }

 private:
  std::string_view stream_;
  std::size_t place_ = 0;  // in bits
};

// A canonical Huffman code, defined by code lengths: shorter codes first, equally long ones in symbol order.
// Decoded by a table that is indexed by the next bits.
class HuffmanCode {
 public:
  explicit HuffmanCode(std::span<const std::uint8_t> lengths) {
    std::array<std::uint32_t, longest_code + 2> next =
        {};  // by length: its first code, with more bits behind it
    for (const std::uint8_t length : lengths) {
      most_ = std::max<int>(most_, length);
      if (length > 0) next[length + 1u] += 1u << (longest_code - length);
    }
    for (std::size_t length = 1; length < next.size(); ++length) next[length] += next[length - 1];
    is_code_ = next.back() <= 1u << longest_code;
    if (!is_code_) return;
    table_.resize(std::size_t{1} << most_);
    for (std::size_t symbol = 0; symbol < lengths.size(); ++symbol) {
      const int length = lengths[symbol];
      if (length == 0) continue;
      std::uint32_t& code = next[lengths[symbol]];
      std::uint32_t reversed = 0;  // codes begin with their first bit
      for (int bit = 0; bit < length; ++bit) reversed |= (code >> (longest_code - 1 - bit) & 1) << bit;
      code += 1u << (longest_code - length);
      for (std::size_t i = reversed; i < table_.size(); i += std::size_t{1} << length)
        table_[i] = {static_cast<std::uint16_t>(symbol), lengths[symbol]};
    }
  }

  bool is_code() const { return is_code_; }

  // The next symbol; nothing if the bits are no code.
  std::optional<std::size_t> take(BitReader& bits) const {
    if (table_.empty()) return std::nullopt;
    const Entry entry = table_[bits.peek(most_)];
    if (entry.length == 0) return std::nullopt;
    bits.skip(entry.length);
    return entry.symbol;
  }

 private:
  struct Entry {
    std::uint16_t symbol = 0;
    std::uint8_t length = 0;
  };

  int most_ = 0;
  bool is_code_ = false;
  std::vector<Entry> table_;
};

struct BlockCodes {
  HuffmanCode literals;  // literals, lengths, and the end of a block
  HuffmanCode distances;
};

BlockCodes fixed_codes() {
  std::array<std::uint8_t, 288> literals;
  for (std::size_t i = 0; i < literals.size(); ++i) literals[i] = i < 144 ? 8 : i < 256 ? 9 : i < 280 ? 7 : 8;
  std::array<std::uint8_t, 30> distances;
  distances.fill(5);
  return {HuffmanCode(literals), HuffmanCode(distances)};
}

// The codes of a block, from lengths that are encoded as lengths and repetitions.
std::optional<BlockCodes> read_codes(BitReader& bits) {
  const std::size_t literals = bits.take(5) + 257, distances = bits.take(5) + 1, count = bits.take(4) + 4;
  constexpr std::array<std::uint8_t, 19> order = {16, 17, 18, 0, 8,  7, 9,  6, 10, 5,
                                                  11, 4,  12, 3, 13, 2, 14, 1, 15};
  std::array<std::uint8_t, order.size()> lengths_of_lengths = {};
  for (std::size_t i = 0; i < count; ++i)
    lengths_of_lengths[order[i]] = static_cast<std::uint8_t>(bits.take(3));
  const HuffmanCode code(lengths_of_lengths);
  if (!code.is_code()) return std::nullopt;
  std::vector<std::uint8_t> lengths;
  while (lengths.size() < literals + distances) {
    const auto symbol = code.take(bits);
    if (!symbol || (*symbol == 16 && lengths.empty())) return std::nullopt;
    if (*symbol < 16) {
      lengths.push_back(static_cast<std::uint8_t>(*symbol));
    } else {
      const std::uint32_t times = *symbol == 16   ? 3 + bits.take(2)
                                  : *symbol == 17 ? 3 + bits.take(3)
                                                  : 11 + bits.take(7);
      lengths.insert(lengths.end(), times, *symbol == 16 ? lengths.back() : std::uint8_t{0});
    }
  }
  if (lengths.size() > literals + distances) return std::nullopt;
  BlockCodes codes{HuffmanCode(std::span(lengths).first(literals)),
                   HuffmanCode(std::span(lengths).subspan(literals))};
  if (!codes.literals.is_code() || !codes.distances.is_code()) return std::nullopt;
  return codes;
}

// A symbol's range of numbers, from which extra bits select.
struct SymbolRange {
  std::uint16_t first;
  std::uint8_t extra_bits;
};

template <std::size_t Count>
constexpr std::array<SymbolRange, Count> symbol_ranges(int first, int symbols_of_a_size) {
  std::array<SymbolRange, Count> ranges = {};
  for (std::size_t i = 0; i < Count; ++i) {
    const int extra = std::max(static_cast<int>(i) / symbols_of_a_size - 1, 0);
    ranges[i] = {static_cast<std::uint16_t>(first), static_cast<std::uint8_t>(extra)};
    first += 1 << extra;
  }
  return ranges;
}

constexpr auto length_ranges = [] {
  auto all = symbol_ranges<29>(3, 4);
  all.back() = {258, 0};
  return all;
}();
constexpr auto distance_ranges = symbol_ranges<30>(1, 2);

// Appends the content of a compressed block; false if it is damaged or exceeds `size` bytes in total.
bool add_block(BitReader& bits, const BlockCodes& codes, std::size_t size, std::string& bytes) {
  const auto number = [&](SymbolRange range) { return range.first + bits.take(range.extra_bits); };
  while (!bits.past_end()) {
    const auto symbol = codes.literals.take(bits);
    if (!symbol) return false;
    if (*symbol == end_of_block) return true;
    if (*symbol < end_of_block) {
      if (bytes.size() == size) return false;
      bytes.push_back(static_cast<char>(*symbol));
      continue;
    }
    if (*symbol > end_of_block + length_ranges.size()) return false;
    const std::size_t length = number(length_ranges[*symbol - end_of_block - 1]);
    const auto distance_symbol = codes.distances.take(bits);
    if (!distance_symbol || *distance_symbol >= distance_ranges.size()) return false;
    const std::size_t distance = number(distance_ranges[*distance_symbol]), place = bytes.size();
    if (distance > place || length > size - place) return false;
    bytes.resize(place + length);
    char* const to = bytes.data() + place;
    if (distance >= length) {
      std::memcpy(to, to - distance, length);
    } else {  // overlapping match
      for (std::size_t i = 0; i < length; ++i) to[i] = to[i - static_cast<std::ptrdiff_t>(distance)];
    }
  }
  return false;
}

}  // namespace

std::optional<std::string> inflate(std::string_view stream, std::size_t size) {
  enum : std::uint32_t { stored, fixed, dynamic };
  std::string bytes;
  bytes.reserve(size);
  BitReader bits(stream);
  for (bool last = false; !last;) {
    last = bits.take(1) == 1;
    const std::uint32_t kind = bits.take(2);
    if (kind == stored) {
      bits.take_bytes(0);
      const std::uint32_t count = bits.take(16), check = bits.take(16);
      const std::string_view stored_bytes = bits.take_bytes(count);
      if (count != (~check & 0xffff) || stored_bytes.size() < count || count > size - bytes.size())
        return std::nullopt;
      bytes += stored_bytes;
    } else {
      const auto codes = kind == fixed ? fixed_codes() : kind == dynamic ? read_codes(bits) : std::nullopt;
      if (!codes || !add_block(bits, *codes, size, bytes)) return std::nullopt;
    }
    if (bits.past_end()) return std::nullopt;
  }
  if (bytes.size() != size) return std::nullopt;
  return bytes;
}

}  // namespace jit
