// Bank conflicts of shared memory.
#include <algorithm>
#include <array>
#include <cstdint>
#include <random>
#include <set>

#include <gtest/gtest.h>

#include "machine/shared_memory.h"

namespace jit::emulator {
namespace {

// The definition, word by word.
Wavefronts count_wavefronts(const std::array<std::uint32_t, 32>& offsets, std::uint32_t mask,
                            std::uint32_t bytes) {
  Wavefronts sum;
  const std::uint32_t lanes = 128 / std::max(bytes, 4u);
  for (std::uint32_t first = 0; first < 32; first += lanes) {
    std::array<std::set<std::uint32_t>, 32> words;
    bool any = false;
    for (std::uint32_t lane = first; lane < first + lanes; ++lane) {
      if ((mask >> lane & 1) == 0) continue;
      any = true;
      for (std::uint32_t byte = offsets[lane]; byte < offsets[lane] + bytes; ++byte) {
        words[byte / 4 % 32].insert(byte / 4);
      }
    }
    std::size_t most = 0;
    for (const auto& bank : words) most = std::max(most, bank.size());
    sum.actual += static_cast<int>(most);
    sum.ideal += any ? 1 : 0;
  }
  return sum;
}

TEST(BankWavefronts, AgreeWithTheirDefinition) {
  std::mt19937 random(8);
  for (int i = 0; i < 4000; ++i) {
    const std::uint32_t bytes = 1u << random() % 6;
    const std::uint32_t range = 64u << random() % 8;
    std::array<std::uint32_t, 32> offsets;
    for (auto& offset : offsets) offset = random() % range / bytes * bytes;
    const std::uint32_t mask = random() % 2 == 0 ? ~0u : random();
    const Wavefronts expected = count_wavefronts(offsets, mask, bytes);
    const Wavefronts actual = bank_wavefronts(offsets, mask, static_cast<int>(bytes));
    ASSERT_EQ(actual.actual, expected.actual) << bytes << " bytes in " << range;
    ASSERT_EQ(actual.ideal, expected.ideal) << bytes << " bytes in " << range;
  }
}

TEST(BankWavefronts, KnownPatterns) {
  std::array<std::uint32_t, 32> offsets;
  const auto strided = [&](std::uint32_t stride, int bytes) {
    for (std::uint32_t lane = 0; lane < 32; ++lane) offsets[lane] = lane * stride;
    return bank_wavefronts(offsets, ~0u, bytes);
  };
  EXPECT_EQ(strided(4, 4).actual, 1);
  EXPECT_EQ(strided(8, 4).actual, 2);
  EXPECT_EQ(strided(128, 4).actual, 32);
  EXPECT_EQ(strided(0, 4).actual, 1) << "one word for all";
  EXPECT_EQ(strided(2, 2).actual, 1);
  EXPECT_EQ(strided(8, 8).actual, 2);
  EXPECT_EQ(strided(8, 8).ideal, 2);
  EXPECT_EQ(strided(16, 16).actual, 4);
  EXPECT_EQ(strided(128, 16).actual, 32) << "rows of a tile that is not swizzled";
  EXPECT_EQ(strided(144, 16).actual, 4) << "rows with 16 bytes of padding";
  EXPECT_EQ(strided(32, 32).ideal, 8);
  EXPECT_EQ(bank_wavefronts(offsets, 0, 4).ideal, 0);
}

}  // namespace
}  // namespace jit::emulator
