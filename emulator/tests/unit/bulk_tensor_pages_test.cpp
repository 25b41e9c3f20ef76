// Tiles put together from several boxes, as a kernel loads keys that lie in pages: where each lands, what lies outside,
// and one mbarrier for all.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "machine/address_space.h"
#include "tests/unit/bulk_tensor_run.h"

namespace jit::emulator::testing {
namespace {

constexpr std::int32_t least = std::numeric_limits<std::int32_t>::min();
constexpr std::int32_t most = std::numeric_limits<std::int32_t>::max();

/// A tensor of `pages` pages, of `rows` rows that are as wide as the swizzle, and boxes of `box_rows` rows of a page.
struct Pages {
  TensorMap map;
  std::vector<std::uint8_t> bytes;
};

Pages random_pages(std::mt19937& random, TestDevice& device, TensorMap::Swizzle swizzle, std::uint32_t rows,
                   std::uint32_t pages, std::uint32_t box_rows) {
  Pages made;
  TensorMap& map = made.map;
  map.element = TensorMap::Element::bf16;
  map.swizzle = swizzle;
  map.rank = 3;
  const std::uint32_t row_bytes = swizzle == TensorMap::Swizzle::none ? 64 : swizzle_span(swizzle);
  map.box = {row_bytes / 2, box_rows, 1, 1, 1};
  map.dimensions = {row_bytes / 2, rows, pages, 1, 1};
  map.strides = {row_bytes + 16, (row_bytes + 16) * rows, 0, 0};
  made.bytes.resize(map.strides[1] * pages);
  for (std::uint8_t& byte : made.bytes) byte = static_cast<std::uint8_t>(random());
  map.address = device.upload(made.bytes);
  return made;
}

/// A box of `row`s of a `page`, to byte `place` of the buffer.
struct Box {
  std::uint32_t place;
  std::int32_t row, page;
};

// Loads boxes of `box_size` bytes, all counted by an mbarrier that expects `expected`, and copies as many bytes as
// they have, from byte `begin` of the buffer, to `out`.
std::string tile_kernel(const std::vector<Box>& boxes, std::uint32_t begin, std::uint64_t box_size,
                        std::uint64_t expected) {
  std::string loads;
  for (const Box& box : boxes) {
    loads +=
        "  add.u32 %r4, %r1, " + std::to_string(box.place) + ";\n  mov.b32 %r5, " + std::to_string(box.row) +
        ";\n  mov.b32 %r6, " + std::to_string(box.page) +
        ";\n  @%p1 cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%r4], [%rd2, "
        "{%r50, %r5, %r6}], [%r2];\n";
  }
  const std::string bytes = std::to_string(box_size * boxes.size());
  return kernel_with_map(init_by_first("bar", 1) +
                         "  @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], " +
                         std::to_string(expected) + ";\n" + loads + wait_for("%r2", "0", "WAIT") +
                         "  add.u32 %r1, %r1, " + std::to_string(begin) + R"(;
  shl.b32 %r3, %r60, 4;
COPY:
  setp.ge.u32 %p2, %r3, )" +
                         bytes + R"(;
  @%p2 bra END;
  add.u32 %r4, %r1, %r3;
  ld.shared.v4.u32 {%r5, %r6, %r7, %r8}, [%r4];
  cvt.u64.u32 %rd3, %r3;
  add.u64 %rd3, %rd3, %rd61;
  st.global.v4.u32 [%rd3], {%r5, %r6, %r7, %r8};
  add.u32 %r3, %r3, 512;
  bra COPY;
END:
)");
}

// A swizzle counts from the address, so that boxes of few rows make up the tile that one box of many would be.
TEST(BulkTensorPages, SwizzleFollowsTheAddressInSharedMemory) {
  static_assert(shared_begin % 1024 == 0);
  std::mt19937 random(21);
  for (const auto swizzle : {TensorMap::Swizzle::none, TensorMap::Swizzle::bytes32,
                             TensorMap::Swizzle::bytes64, TensorMap::Swizzle::bytes128}) {
    for (const std::uint32_t rows : {1u, 2u, 3u, 4u, 5u, 7u, 12u}) {
      for (std::uint32_t place = 0; place <= 2048; place += 128 * (1 + random() % 3)) {
        TestDevice device;
        const Pages pages = random_pages(random, device, swizzle, 16, 3, rows);
        const std::uint64_t bytes = box_bytes(pages.map);
        const std::uint64_t out = device.room<std::uint8_t>(bytes);
        const Box box = {place, static_cast<std::int32_t>(random() % 16),
                         static_cast<std::int32_t>(random() % 3)};
        const LaunchResult result =
            run(device, tile_kernel({box}, place, bytes, bytes), pages.map, out, {}, random());
        ASSERT_EQ(findings_of(result), "") << place;
        const auto got = device.download<std::uint8_t>(out, bytes);
        walk(
            pages.map, {0, box.row, box.page},
            [&](std::int64_t from, std::uint32_t to) {
              ASSERT_EQ(got[to - place], from < 0 ? 0 : pages.bytes[static_cast<std::size_t>(from)])
                  << static_cast<int>(swizzle) << " rows " << rows << " at " << place << " byte " << to;
            },
            place);
      }
    }
  }
}

TEST(BulkTensorPages, BoxesOfPagesMakeUpATile) {
  std::mt19937 random(22);
  for (const auto swizzle :
       {TensorMap::Swizzle::bytes32, TensorMap::Swizzle::bytes64, TensorMap::Swizzle::bytes128}) {
    for (const std::uint32_t rows : {4u, 8u, 16u}) {
      TestDevice device;
      const Pages pages = random_pages(random, device, swizzle, rows, 64, rows);
      const auto size = static_cast<std::uint32_t>(box_bytes(pages.map));
      std::vector<Box> boxes;
      for (std::uint32_t i = 0; i < 16; ++i) {
        boxes.push_back({1024 + i * size, 0, static_cast<std::int32_t>(random() % 64)});
      }
      const std::uint64_t out = device.room<std::uint8_t>(16 * size);
      const LaunchResult result =
          run(device, tile_kernel(boxes, 1024, size, 16 * size), pages.map, out, {}, random());
      ASSERT_EQ(findings_of(result), "");
      const auto got = device.download<std::uint8_t>(out, 16 * size);
      const std::uint32_t row_bytes = size / rows;
      for (std::uint32_t byte = 0; byte < got.size(); ++byte) {
        const std::uint32_t row = byte / row_bytes, page = static_cast<std::uint32_t>(boxes[row / rows].page);
        const std::size_t from =
            page * pages.map.strides[1] + row % rows * pages.map.strides[0] + byte % row_bytes;
        ASSERT_EQ(got[place_of(swizzle, byte)], pages.bytes[from]) << byte;
      }
    }
  }
}

// All of a box counts at the mbarrier, and what of it lies outside of the tensor is zero.
TEST(BulkTensorPages, WhatLiesOutsideIsZero) {
  std::mt19937 random(23);
  const std::array<std::int32_t, 2> places[] = {{-1, 0},    {-3, 2},   {-4, 1},      {14, 1},    {16, 2},
                                                {4, -1},    {4, 3},    {-4, -4},     {least, 0}, {most, 1},
                                                {3, least}, {3, most}, {least, most}};
  for (const auto swizzle : {TensorMap::Swizzle::none, TensorMap::Swizzle::bytes128}) {
    for (const auto& [row, page] : places) {
      TestDevice device;
      const Pages pages = random_pages(random, device, swizzle, 16, 3, 4);
      const std::uint64_t bytes = box_bytes(pages.map);
      const std::uint64_t out = device.room<std::uint8_t>(bytes);
      const LaunchResult result =
          run(device, tile_kernel({{128, row, page}}, 128, bytes, bytes), pages.map, out);
      ASSERT_EQ(findings_of(result), "") << row << " " << page;
      const auto got = device.download<std::uint8_t>(out, bytes);
      walk(
          pages.map, {0, row, page},
          [&, row = row, page = page](std::int64_t from, std::uint32_t to) {
            ASSERT_EQ(got[to - 128], from < 0 ? 0 : pages.bytes[static_cast<std::size_t>(from)])
                << row << " " << page;
          },
          128);
    }
  }
}

class Tile : public ::testing::Test {
 protected:
  std::string findings(const std::vector<Box>& boxes, std::uint64_t expected) {
    std::mt19937 random(24);
    TestDevice device;
    const Pages pages = random_pages(random, device, TensorMap::Swizzle::bytes128, 4, 8, 4);
    const std::uint64_t out = device.room<std::uint8_t>(boxes.size() * 512);
    return findings_of(run(device, tile_kernel(boxes, 0, 512, expected), pages.map, out));
  }
};

TEST_F(Tile, OfWholeBoxesIsFine) { EXPECT_EQ(findings({{0, 0, 1}, {512, 0, 5}}, 1024), ""); }

TEST_F(Tile, WaitsForAllBoxes) {
  EXPECT_NE(findings({{0, 0, 1}, {512, 0, 5}}, 1536).find("lacks 512 of the bytes"), std::string::npos);
}

// The phase ends with the first box, the second one is on its way when the tile is read.
TEST_F(Tile, BoxThatIsNotExpected) {
  const std::string found = findings({{0, 0, 1}, {512, 0, 5}}, 512);
  EXPECT_NE(found.find("access in flight"), std::string::npos) << found;
}

TEST_F(Tile, BoxesOverlap) {
  const std::string found = findings({{0, 0, 1}, {384, 0, 5}}, 1024);
  EXPECT_NE(found.find("access in flight"), std::string::npos) << found;
}

TEST_F(Tile, BoxBetweenLinesIsMisaligned) {
  const std::string found = findings({{64, 0, 1}}, 512);
  EXPECT_NE(found.find("multiple of 128"), std::string::npos) << found;
}

}  // namespace
}  // namespace jit::emulator::testing
