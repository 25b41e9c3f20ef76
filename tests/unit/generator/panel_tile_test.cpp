#include "templates/tiles/panel_tile.cuh"

#include <cstdint>
#include <set>
#include <tuple>
#include <utility>

#include <gtest/gtest.h>

namespace jit {
namespace {

using std::uint64_t;

/// An element of 8 bits.
struct fp8_code {
  unsigned char bits;
};

constexpr unsigned tile_address = 5 * 1024;  // tiles lie at multiples of 1024 bytes

// The swizzle of an address in hardware (PTX ISA, "Swizzling Modes"): the 16-byte chunk is XORed with the
// bits three above it, as many as the swizzle has.
unsigned hardware_swizzle(unsigned address, int swizzle_bytes) {
  switch (swizzle_bytes) {
    case 128:
      return address ^ ((address >> 7 & 7) << 4);
    case 64:
      return address ^ ((address >> 7 & 3) << 4);
    default:
      return address ^ ((address >> 7 & 1) << 4);
  }
}

template <int rows, int head_dim>
void expect_swizzled() {
  using Tile = PanelTile<bf16, rows, head_dim>;
  std::set<unsigned> addresses;
  for (int row = 0; row < rows; ++row) {
    for (int column = 0; column < Tile::panels * Tile::columns; column += 8) {
      const int panel = column / Tile::columns, byte = column % Tile::columns * 2;
      const unsigned row_major =
          tile_address + static_cast<unsigned>((panel * rows + row) * Tile::row_bytes + byte);
      const unsigned address = Tile::chunk_address(tile_address, row, column / 8);
      ASSERT_EQ(address, hardware_swizzle(row_major, Tile::row_bytes))
          << rows << " rows, head_dim " << head_dim << ", row " << row << ", column " << column;
      const int chunk = column / 8, from = chunk % 2;  // a panel has an even number of chunks
      ASSERT_EQ(Tile::chunk_behind(Tile::chunk_address(tile_address, row, from), chunk - from), address)
          << rows << " rows, head_dim " << head_dim << ", row " << row << ", chunk " << chunk;
      addresses.insert(address);
    }
  }
  EXPECT_EQ(addresses.size() * 16, static_cast<std::size_t>(Tile::bytes));
  EXPECT_EQ(*addresses.rbegin() + 16 - *addresses.begin(), static_cast<unsigned>(Tile::bytes));
}

template <int... steps>
void expect_all_swizzled(std::integer_sequence<int, steps...>) {
  (expect_swizzled<64, 8 * (steps + 1)>(), ...);
}

TEST(PanelTile, ChunksLieWhereTheHardwareSwizzlesThem) {
  expect_all_swizzled(std::make_integer_sequence<int, 32>());
  expect_swizzled<16, 64>();
  expect_swizzled<48, 16>();
  expect_swizzled<80, 32>();
  expect_swizzled<192, 128>();
  expect_swizzled<256, 256>();
}

TEST(PanelTile, PanelsAreAsWideAsTheNarrowestSwizzleThatFits) {
  for (const auto& [head_dim, columns, count] : {std::tuple(8, 16, 1),
                                                 {16, 16, 1},
                                                 {24, 32, 1},
                                                 {32, 32, 1},
                                                 {40, 64, 1},
                                                 {64, 64, 1},
                                                 {72, 64, 2},
                                                 {96, 64, 2},
                                                 {128, 64, 2},
                                                 {136, 64, 3},
                                                 {192, 64, 3},
                                                 {200, 64, 4},
                                                 {256, 64, 4}}) {
    EXPECT_EQ(panel_columns(head_dim), columns) << head_dim;
    EXPECT_EQ(panel_count(head_dim), count) << head_dim;
    EXPECT_EQ(panel_tile_bytes(1, head_dim), 2 * columns * count) << head_dim;
    EXPECT_EQ(panel_tile_bytes(192, head_dim), 384 * columns * count) << head_dim;
  }
}

// A panel is as wide as the swizzle in bytes, and a step of wgmma covers 32 bytes: elements of 8 bits are
// twice as many.
TEST(PanelTile, CountsBytesOfAnyElement) {
  struct Byte {
    unsigned char bits;
  };
  using Tile = PanelTile<Byte, 64, 128>;
  EXPECT_EQ(Tile::columns, 128);
  EXPECT_EQ(Tile::panels, 1);
  EXPECT_EQ(Tile::row_bytes, 128);
  EXPECT_EQ(Tile::bytes, panel_tile_bytes(64, 128, 1));
  EXPECT_EQ(Tile::column_step(3), (PanelTile<bf16, 64, 64>::column_step(3)));
  EXPECT_EQ(Tile::row_step(1), (PanelTile<bf16, 64, 64>::row_step(2)));
}

TEST(PanelTile, ConstantsFollowFromThePanels) {
  using Tile = PanelTile<bf16, 48, 200>;
  EXPECT_EQ(Tile::rows, 48);
  EXPECT_EQ(Tile::columns, 64);
  EXPECT_EQ(Tile::panels, 4);
  EXPECT_EQ(Tile::row_bytes, 128);
  EXPECT_EQ(Tile::panel_bytes, 48 * 128);
  EXPECT_EQ(Tile::bytes, panel_tile_bytes(48, 200));
}

// PTX ISA, "Matrix Descriptor Format".
struct Fields {
  unsigned start;    ///< bytes
  unsigned leading;  ///< bytes
  unsigned stride;   ///< bytes
  unsigned base_offset;
  unsigned swizzle;
  uint64_t other;  ///< bits that must be 0
};

Fields fields_of(uint64_t descriptor) {
  const auto field = [&](int first, int bits) {
    return static_cast<unsigned>(descriptor >> first & ((uint64_t{1} << bits) - 1));
  };
  constexpr uint64_t used = 0x3fff | 0x3fffull << 16 | 0x3fffull << 32 | 7ull << 49 | 3ull << 62;
  return {.start = field(0, 14) * 16,
          .leading = field(16, 14) * 16,
          .stride = field(32, 14) * 16,
          .base_offset = field(49, 3),
          .swizzle = field(62, 2),
          .other = descriptor & ~used};
}

// Eight rows are the swizzle's atom: the next atom begins behind them.
void expect_mode(const Fields& fields, int swizzle_bytes) {
  EXPECT_EQ(fields.swizzle, swizzle_bytes == 128 ? 1u : swizzle_bytes == 64 ? 2u : 3u);
  EXPECT_EQ(fields.stride, 8u * static_cast<unsigned>(swizzle_bytes));
  EXPECT_EQ(fields.base_offset, 0u) << "tiles are aligned to the swizzle's pattern";
  EXPECT_EQ(fields.other, 0u);
}

// The start of an operand is the address before the swizzle, which the hardware applies to what it computes
// from there.
template <int rows, int head_dim>
void expect_along_columns() {
  using Tile = PanelTile<bf16, rows, head_dim>;
  for (int row = 0; row < rows; row += 64) {
    for (int step = 0; step < (head_dim + 15) / 16; ++step) {
      SCOPED_TRACE(::testing::Message() << "head_dim " << head_dim << ", row " << row << ", step " << step);
      const Fields fields = fields_of(Tile::along_columns(tile_address, row, step));
      const int panel = 16 * step / Tile::columns, column = 16 * step % Tile::columns;
      EXPECT_EQ(fields.start,
                tile_address + static_cast<unsigned>((panel * rows + row) * Tile::row_bytes + column * 2));
      expect_mode(fields, Tile::row_bytes);
    }
  }
}

TEST(PanelTile, DescribesTilesWhoseSumRunsAlongColumns) {
  expect_along_columns<192, 8>();
  expect_along_columns<192, 16>();
  expect_along_columns<128, 32>();
  expect_along_columns<64, 40>();
  expect_along_columns<64, 64>();
  expect_along_columns<128, 136>();
  expect_along_columns<192, 256>();
}

template <int rows, int head_dim>
void expect_along_rows() {
  using Tile = PanelTile<bf16, rows, head_dim>;
  for (int step = 0; step < rows / 16; ++step) {
    SCOPED_TRACE(::testing::Message() << "head_dim " << head_dim << ", step " << step);
    const Fields fields = fields_of(Tile::along_rows(tile_address, step));
    EXPECT_EQ(fields.start, tile_address + static_cast<unsigned>(16 * step * Tile::row_bytes));
    EXPECT_EQ(fields.leading, static_cast<unsigned>(rows * Tile::row_bytes)) << "from panel to panel";
    expect_mode(fields, Tile::row_bytes);
  }
}

TEST(PanelTile, DescribesTilesWhoseSumRunsAlongRows) {
  expect_along_rows<64, 16>();
  expect_along_rows<48, 32>();
  expect_along_rows<80, 64>();
  expect_along_rows<112, 128>();
  expect_along_rows<256, 256>();
}

// 14 bits of 16 bytes reach 256 KiB, further than a block's shared memory.
TEST(PanelTile, DescriptorsReachTheEndOfSharedMemory) {
  constexpr unsigned last = 226 * 1024;
  EXPECT_EQ(fields_of(PanelTile<bf16, 16, 32>::along_columns(last, 0, 1)).start, last + 32);
  EXPECT_EQ(fields_of(PanelTile<bf16, 16, 32>::along_rows(last, 0)).start, last);
}

// A lane's first address and the steps that ldmatrix takes from it, of tiles of both widths.
template <class Element, int rows, int head_dim>
void expect_steps_of_rows() {
  using Panels = PanelTile<Element, rows, head_dim>;
  constexpr int chunks = padded_head_dim(head_dim) / ElementTraits<Element>::per_chunk;
  using Rows = PanelRows<Panels, chunks>;
  for (int row = 0; row < 16; ++row) {
    for (int chunk = 0; chunk < 2; ++chunk) {
      ASSERT_EQ(static_cast<unsigned>(Rows::offset(row, chunk)), Panels::chunk_address(0, row, chunk));
      for (int rows_on = 0; row + rows_on < rows; rows_on += 8) {
        for (int chunks_on = 0; chunk + chunks_on < chunks; chunks_on += 2) {
          ASSERT_EQ(Rows::advance(tile_address + static_cast<unsigned>(Rows::offset(row, chunk)), rows_on,
                                  chunks_on),
                    Panels::chunk_address(tile_address, row + rows_on, chunk + chunks_on))
              << "head_dim " << head_dim << ", row " << row << " + " << rows_on << ", chunk " << chunk
              << " + " << chunks_on;
        }
      }
    }
  }
}

TEST(PanelRows, StepsFollowTheSwizzle) {
  expect_steps_of_rows<bf16, 64, 128>();
  expect_steps_of_rows<bf16, 32, 80>();
  expect_steps_of_rows<fp8_code, 48, 256>();
  expect_steps_of_rows<fp8_code, 64, 96>();
  expect_steps_of_rows<fp8_code, 64, 64>();
  expect_steps_of_rows<fp8_code, 64, 32>();
}

}  // namespace
}  // namespace jit
