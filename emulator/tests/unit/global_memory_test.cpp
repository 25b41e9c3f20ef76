#include "machine/global_memory.h"

#include <cstring>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace jit::emulator {
namespace {

constexpr std::size_t mebibyte = std::size_t{1} << 20;

TEST(GlobalMemory, HandsOutAlignedRangesWithGapsBetween) {
  GlobalMemory memory(mebibyte);
  std::uint64_t end = 0;
  for (const std::size_t bytes : {1, 255, 256, 257, 4096, 3}) {
    const std::uint64_t address = memory.allocate(bytes);
    EXPECT_GE(address, global_begin);
    EXPECT_EQ(address % 256, 0u);
    EXPECT_GE(address, end == 0 ? 0 : end + 256) << "after an allocation that ends at " << end;
    EXPECT_NE(memory.at(address, bytes), nullptr);
    EXPECT_EQ(memory.at(address, bytes + 1), nullptr);
    EXPECT_EQ(memory.at(address - 1, 1), nullptr);
    EXPECT_EQ(memory.at(address + bytes, 1), nullptr);
    end = address + bytes;
  }
  EXPECT_EQ(memory.allocated(), 1u + 255 + 256 + 257 + 4096 + 3);
}

TEST(GlobalMemory, NothingOutsideOfItIsAllocated) {
  GlobalMemory memory(mebibyte);
  const std::uint64_t address = memory.allocate(64);
  for (const std::uint64_t outside :
       {std::uint64_t{0}, std::uint64_t{8}, global_begin - 1, global_begin + mebibyte,
        global_begin + mebibyte - 1, ~std::uint64_t{0}, shared_window}) {
    EXPECT_EQ(memory.at(outside, 1), nullptr) << outside;
    EXPECT_EQ(memory.allocation_of(outside).bytes, 0u) << outside;
  }
  EXPECT_EQ(memory.at(address, ~std::size_t{0}), nullptr);
  EXPECT_EQ(memory.at(address + 32, ~std::size_t{0} - 31), nullptr);
}

TEST(GlobalMemory, RefusesWhatDoesNotFit) {
  GlobalMemory memory(mebibyte);
  EXPECT_EQ(memory.allocate(0), 0u);
  EXPECT_EQ(memory.allocate(mebibyte), 0u);
  EXPECT_EQ(memory.allocate(~std::size_t{0}), 0u);
  const std::uint64_t most = memory.allocate(mebibyte - 1024);
  EXPECT_NE(most, 0u);
  EXPECT_EQ(memory.allocate(4096), 0u);
  EXPECT_TRUE(memory.free(most));
  EXPECT_NE(memory.allocate(4096), 0u);
  EXPECT_THROW(GlobalMemory(std::size_t{1} << 60), std::bad_alloc);
}

TEST(GlobalMemory, AFreedRangeIsNotReusedBeforeAllOthers) {
  GlobalMemory memory(mebibyte);
  const std::uint64_t first = memory.allocate(1024);
  ASSERT_TRUE(memory.free(first));
  EXPECT_FALSE(memory.free(first));
  EXPECT_FALSE(memory.free(first + 256));
  EXPECT_EQ(memory.at(first, 1), nullptr);
  // 1024 bytes and the gap come to 1280: the whole of the memory comes before `first` again.
  for (std::size_t i = 1; i < mebibyte / 1280; ++i) {
    const std::uint64_t other = memory.allocate(1024);
    ASSERT_NE(other, first) << i;
    ASSERT_TRUE(memory.free(other));
  }
  EXPECT_EQ(memory.allocate(1024), first);
}

TEST(GlobalMemory, GivesTheSameAddressesInEveryRun) {
  const auto addresses = [] {
    GlobalMemory memory(mebibyte);
    std::mt19937 random(3);
    std::vector<std::uint64_t> live, all;
    for (int i = 0; i < 500; ++i) {
      if (!live.empty() && random() % 3 == 0) {
        const std::size_t which = random() % live.size();
        EXPECT_TRUE(memory.free(live[which]));
        live.erase(live.begin() + static_cast<std::ptrdiff_t>(which));
      } else if (const std::uint64_t address = memory.allocate(1 + random() % 9000); address != 0) {
        live.push_back(address);
        all.push_back(address);
      }
    }
    return all;
  };
  EXPECT_EQ(addresses(), addresses());
}

// Against a list of ranges, searched through.
TEST(GlobalMemory, RangesNeverOverlap) {
  GlobalMemory memory(mebibyte);
  std::mt19937 random(4);
  struct Range {
    std::uint64_t begin;
    std::size_t bytes;
  };
  std::vector<Range> live;
  int failures = 0;
  for (int i = 0; i < 3000; ++i) {
    if (!live.empty() && random() % 5 < 2) {
      const std::size_t which = random() % live.size();
      ASSERT_TRUE(memory.free(live[which].begin));
      live[which] = live.back();
      live.pop_back();
      continue;
    }
    const std::size_t bytes = 1 + random() % 40000;
    const std::uint64_t begin = memory.allocate(bytes);
    if (begin == 0) {
      ++failures;
      continue;
    }
    ASSERT_LE(begin + bytes, global_begin + memory.capacity());
    for (const Range& other : live) {
      ASSERT_TRUE(begin + bytes + 256 <= other.begin || other.begin + other.bytes + 256 <= begin);
    }
    ASSERT_NE(memory.at(begin, bytes), nullptr);
    ASSERT_FALSE(memory.is_written(begin, 1));
    memory.mark_written(begin, bytes);
    live.push_back({begin, bytes});
    EXPECT_EQ(memory.allocation_of(begin + bytes - 1).begin, begin);
  }
  EXPECT_GT(failures, 0) << "the memory was never full";
}

TEST(GlobalMemory, HostAccessesMustLieInOneAllocation) {
  GlobalMemory memory(mebibyte);
  const std::uint64_t address = memory.allocate(100);
  std::vector<std::uint8_t> bytes(200, 7);
  EXPECT_TRUE(memory.write(address, bytes.data(), 100));
  EXPECT_FALSE(memory.write(address, bytes.data(), 101));
  EXPECT_FALSE(memory.write(address + 1, bytes.data(), 100));
  EXPECT_TRUE(memory.read(bytes.data(), address + 99, 1));
  EXPECT_FALSE(memory.read(bytes.data(), address + 100, 1));
  EXPECT_FALSE(memory.read(bytes.data(), 0, 1));
  EXPECT_TRUE(memory.write(0, bytes.data(), 0));
  EXPECT_FALSE(memory.fill(address, 0, 4, 26));
  EXPECT_TRUE(memory.fill(address, 0, 4, 25));
  EXPECT_FALSE(memory.fill(address, 0, 5, 1));
  EXPECT_FALSE(memory.fill(address, 0, 4, ~std::size_t{0} / 2));
  EXPECT_FALSE(memory.copy(address, address + 50, 51));
  EXPECT_TRUE(memory.copy(address, address + 50, 50));
}

TEST(GlobalMemory, FillRepeatsTheLowBytes) {
  GlobalMemory memory(mebibyte);
  for (int width = 1; width <= 4; ++width) {
    const auto step = static_cast<std::size_t>(width);
    const std::uint64_t address = memory.allocate(60);
    ASSERT_TRUE(memory.fill(address, 0x44332211u, width, 60 / step));
    std::vector<std::uint8_t> bytes(60);
    ASSERT_TRUE(memory.read(bytes.data(), address, 60));
    for (std::size_t i = 0; i < 60; ++i) EXPECT_EQ(bytes[i], 0x11 * (i % step + 1)) << width << " " << i;
  }
}

TEST(GlobalMemory, RemembersWhichBytesWereWritten) {
  GlobalMemory memory(mebibyte);
  std::uint64_t address = 0;
  std::vector<bool> written;
  std::mt19937 random(5);
  const std::uint64_t value = 0;
  for (int i = 0; i < 300; ++i) {
    if (i % 30 == 0) {
      address = memory.allocate(512);
      written.assign(512, false);
    }
    const std::size_t from = random() % 512, bytes = random() % std::min<std::size_t>(512 - from, 40);
    if (random() % 2 == 0) {
      memory.mark_written(address + from, bytes);
      std::fill_n(written.begin() + static_cast<std::ptrdiff_t>(from), bytes, true);
    } else if (from < 504 && memory.write(address + from, &value, 8)) {
      std::fill_n(written.begin() + static_cast<std::ptrdiff_t>(from), 8, true);
    }
    const std::size_t at = random() % 512, count = random() % (512 - at);
    bool expected = true;
    for (std::size_t k = at; k < at + count; ++k) expected &= written[k];
    ASSERT_EQ(memory.is_written(address + at, count), expected) << at << " " << count;
    ASSERT_EQ(memory.written_at(address + at, count) != nullptr, expected) << at << " " << count;
    ASSERT_NE(memory.at(address + at, count), nullptr);
  }
}

TEST(GlobalMemory, CopyCarriesUninitializedBytesAlong) {
  GlobalMemory memory(mebibyte);
  const std::uint64_t from = memory.allocate(16), to = memory.allocate(16);
  const std::uint32_t value = 0x01020304;
  ASSERT_TRUE(memory.write(from + 4, &value, 4));
  ASSERT_TRUE(memory.fill(to, 0, 4, 4));
  ASSERT_TRUE(memory.copy(to, from, 8));
  EXPECT_FALSE(memory.is_written(to + 3, 1));
  EXPECT_TRUE(memory.is_written(to + 4, 12));
  std::uint32_t back = 0;
  ASSERT_TRUE(memory.read(&back, to + 4, 4));
  EXPECT_EQ(back, value);
}

TEST(GlobalMemory, AFreshAllocationIsNotInitializedAlsoWhereOthersWere) {
  GlobalMemory memory(mebibyte);
  for (const std::size_t bytes : {100u, 5000u, 300000u}) {
    std::uint64_t last = 0;
    for (int i = 0; i < 40; ++i) {
      const std::uint64_t address = memory.allocate(bytes);
      ASSERT_NE(address, 0u);
      ASSERT_NE(memory.at(address, bytes), nullptr);
      for (std::size_t k = 0; k < bytes; k += 37) ASSERT_FALSE(memory.is_written(address + k, 1)) << k;
      ASSERT_TRUE(memory.fill(address, 0xff, 1, bytes));
      ASSERT_TRUE(last == 0 || memory.at(last, 1) == nullptr);
      ASSERT_TRUE(memory.free(address));
      last = address;
    }
  }
}

TEST(GlobalMemory, DescribesAddressesForAReader) {
  GlobalMemory memory(mebibyte);
  EXPECT_NE(memory.describe(0).find("null pointer"), std::string::npos);
  const std::uint64_t address = memory.allocate(64);
  EXPECT_NE(memory.describe(address + 12).find("is byte 12 of the 64 bytes"), std::string::npos);
  EXPECT_NE(memory.describe(address + 70).find("lies 6 bytes behind the end of the 64 bytes"),
            std::string::npos);
}

TEST(GlobalMemory, IsThreadSafe) {
  GlobalMemory memory(16 * mebibyte);
  const auto work = [&](int seed) {
    std::mt19937 random(static_cast<unsigned>(seed));
    for (int i = 0; i < 300; ++i) {
      const std::size_t bytes = 1 + random() % 5000;
      const std::uint64_t address = memory.allocate(bytes);
      ASSERT_NE(address, 0u);
      ASSERT_TRUE(memory.fill(address, static_cast<std::uint32_t>(seed), 1, bytes));
      std::vector<std::uint8_t> back(bytes);
      ASSERT_TRUE(memory.read(back.data(), address, bytes));
      for (const std::uint8_t byte : back) ASSERT_EQ(byte, seed);
      ASSERT_TRUE(memory.free(address));
    }
  };
  {
    std::vector<std::jthread> threads;
    for (int i = 1; i <= 4; ++i) threads.emplace_back(work, i);
  }
  EXPECT_EQ(memory.allocated(), 0u);
}

}  // namespace
}  // namespace jit::emulator
