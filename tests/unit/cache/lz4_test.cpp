#include "cache/lz4.h"

#include <initializer_list>
#include <random>

#include <gtest/gtest.h>

#include "tests/support/cache_entries.h"

namespace jit {
namespace {

using Bytes = std::vector<std::byte>;

Bytes bytes_of(std::initializer_list<int> values) {
  Bytes bytes;
  for (const int value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

// As machine code is: words of a few kinds, and stretches that come again.
Bytes like_code(std::size_t size, unsigned seed) {
  std::mt19937 random(seed);
  Bytes bytes;
  while (bytes.size() < size) {
    if (bytes.size() > 64 && random() % 3 == 0) {
      const std::size_t from = random() % bytes.size();
      for (std::size_t i = from, end = from + random() % 300; i < end; ++i) bytes.push_back(bytes[i]);
    } else {
      bytes.push_back(static_cast<std::byte>(random() % 7));
    }
  }
  bytes.resize(size);
  return bytes;
}

TEST(Lz4, GivesBackWhatWasCompressed) {
  for (std::size_t size = 0; size < 40; ++size) {
    EXPECT_EQ(decompress(compress(Bytes(size))), Bytes(size)) << size;
    EXPECT_EQ(decompress(compress(testing::bytes_of(size, 1))), testing::bytes_of(size, 1)) << size;
  }
  for (unsigned seed = 0; seed < 100; ++seed) {
    const Bytes code = like_code(2000 * seed, seed);
    ASSERT_EQ(decompress(compress(code)), code) << seed;
  }
  const Bytes random = testing::bytes_of(100'000, 7);  // longer than the largest offset
  EXPECT_EQ(decompress(compress(random)), random);
}

TEST(Lz4, FindsWhatComesAgain) {
  EXPECT_LT(compress(Bytes(100'000)).size(), 500u);
  EXPECT_LT(compress(like_code(100'000, 1)).size(), 40'000u);
  EXPECT_LT(compress(testing::bytes_of(100'000, 7)).size(), 100'500u);
}

// A block of another compressor: lz4.block of Python's package lz4, without the size before it.
TEST(Lz4, ReadsBlocksOfOthers) {
  EXPECT_EQ(decompress(bytes_of({0})), Bytes());
  Bytes expected;
  for (int i = 0; i < 38; ++i) expected.push_back(static_cast<std::byte>('a' + i % 4));
  EXPECT_EQ(decompress(bytes_of({0x4f, 'a', 'b', 'c', 'd', 4, 0, 0x0a, 0x50, 'b', 'c', 'd', 'a', 'b'})),
            expected);
}

TEST(Lz4, DamagedBlocksAreRefusedOrGiveOtherBytes) {
  const Bytes block = compress(like_code(3000, 3));
  for (std::size_t size = 0; size < block.size(); ++size) (void)decompress(std::span(block).first(size));
  std::mt19937 random(5);
  for (int i = 0; i < 2000; ++i) {
    Bytes damaged = block;
    for (int k = 0; k <= i % 3; ++k) damaged[random() % damaged.size()] = static_cast<std::byte>(random());
    (void)decompress(damaged);
    (void)decompress(testing::bytes_of(static_cast<std::size_t>(i), static_cast<unsigned>(i)));
  }
  EXPECT_FALSE(decompress({}));
  EXPECT_FALSE(decompress(bytes_of({0x10, 'a', 2, 0, 0x10, 'a'}))) << "before the beginning";
  EXPECT_FALSE(decompress(bytes_of({0x10, 'a', 0, 0, 0x10, 'a'}))) << "offset 0";
  EXPECT_FALSE(decompress(bytes_of({0x1f, 'a'}))) << "a match at the end";
  EXPECT_FALSE(decompress(bytes_of({0xf0, 255}))) << "a number that does not end";
}

}  // namespace
}  // namespace jit
