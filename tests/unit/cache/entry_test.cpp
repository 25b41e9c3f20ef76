#include "cache/entry.h"

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace jit {
namespace {

Entry sample() {
  Entry entry{"schema 1\n1\n", "{\"registers\":168}", {}};
  for (int i = 0; i < 100; ++i) entry.code.push_back(static_cast<std::byte>(i * 7));
  return entry;
}

TEST(Entry, RoundTrips) {
  Entry entry = sample();
  EXPECT_EQ(decode(encode(entry)), entry);
  entry.key_text = std::string("\0zero", 5);
  entry.metadata.clear();
  EXPECT_EQ(decode(encode(entry)), entry);
}

TEST(Entry, IsDrawnAsDocumented) {
  const std::vector<std::byte> bytes = encode("key", "meta", std::vector<std::byte>(5, std::byte{9}));
  EXPECT_EQ(bytes.size(), 40u + 3 + 4 + 5 + 16);
  EXPECT_EQ(std::memcmp(bytes.data(), "JITATTN\x1a\1\0\0\0\0\0\0\0\3\0\0\0\0\0\0\0", 24), 0);
  EXPECT_EQ(std::memcmp(bytes.data() + 40, "keymeta\t\t\t\t\t", 12), 0);
  EXPECT_EQ(encoded_size(bytes), bytes.size());
}

TEST(Entry, WithoutCubinIsNone) { EXPECT_FALSE(decode(encode("key", "metadata", {}))); }

TEST(Entry, EveryFlippedByteIsDamage) {
  const std::vector<std::byte> whole = encode(sample());
  for (std::size_t i = 0; i < whole.size(); ++i) {
    for (const int mask : {1, 0x80, 0xff}) {
      std::vector<std::byte> bytes = whole;
      bytes[i] ^= static_cast<std::byte>(mask);
      EXPECT_FALSE(decode(bytes)) << "byte " << i << ", mask " << mask;
    }
  }
}

TEST(Entry, EveryTruncationIsDamage) {
  const std::vector<std::byte> whole = encode(sample());
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const std::vector<std::byte> bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_FALSE(decode(bytes)) << size;
    EXPECT_FALSE(encoded_size(bytes)) << size;
  }
  std::vector<std::byte> longer = whole;
  longer.push_back(std::byte{0});
  EXPECT_FALSE(decode(longer));
  EXPECT_EQ(encoded_size(longer), whole.size());
}

TEST(Entry, GarbageIsDamage) {
  std::mt19937 random(1);
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::byte> bytes(random() % 200);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    // Half of them get past the magic and the version, so that the lengths are random.
    if (round % 2 == 0 && bytes.size() >= 16) {
      const std::vector<std::byte> whole = encode(sample());
      std::copy(whole.begin(), whole.begin() + 16, bytes.begin());
    }
    EXPECT_FALSE(decode(bytes));
    encoded_size(bytes);
  }
}

TEST(Entry, HugeLengthsDoNotWrapAround) {
  const std::vector<std::byte> whole = encode(sample());
  for (std::size_t field = 16; field < 40; field += 8) {
    for (const std::uint64_t length : {~std::uint64_t{0}, ~std::uint64_t{0} - 100, std::uint64_t{1} << 63}) {
      std::vector<std::byte> bytes = whole;
      std::memcpy(bytes.data() + field, &length, sizeof length);
      EXPECT_FALSE(decode(bytes));
      EXPECT_FALSE(encoded_size(bytes));
    }
  }
}

}  // namespace
}  // namespace jit
