// Matrix descriptors, as bits and as addresses.
#include "operations/tensor/wgmma_descriptor.h"

#include <set>
#include <string>

#include <gtest/gtest.h>

namespace jit::emulator {
namespace {

constexpr std::uint64_t encode(std::uint64_t bytes) { return (bytes & 0x3ffff) >> 4; }
constexpr std::uint64_t bits_of(std::uint64_t start, std::uint64_t leading, std::uint64_t stride,
                                std::uint64_t mode, std::uint64_t base_offset = 0) {
  return encode(start) | encode(leading) << 16 | encode(stride) << 32 | base_offset << 49 | mode << 62;
}
OperandLayout layout_of(std::uint64_t bits, Major major) { return {MatrixDescriptor::parse(bits), major}; }

TEST(MatrixDescriptor, TakesTheFieldsApart) {
  const auto descriptor = MatrixDescriptor::parse(bits_of(0x3fff0, 0x1230, 0x20000, 2, 5));
  EXPECT_EQ(descriptor.start, 0x3fff0u);
  EXPECT_EQ(descriptor.leading, 0x1230u);
  EXPECT_EQ(descriptor.stride, 0x20000u);
  EXPECT_EQ(descriptor.base_offset, 5u);
  EXPECT_EQ(descriptor.swizzle, MatrixDescriptor::Swizzle::bytes64);
}

// From the figures of "Shared Memory Matrix Layout": core matrices of 8 lines × 16 bytes.
TEST(OperandLayout, WithoutSwizzle) {
  const auto along_k = layout_of(bits_of(2048, 384, 512, 0), Major::k);
  EXPECT_EQ(along_k.address(0, 0), 2048u);
  EXPECT_EQ(along_k.address(7, 0), 2048u + 7 * 16);
  EXPECT_EQ(along_k.address(8, 0), 2048u + 512);
  EXPECT_EQ(along_k.address(3, 1), 2048u + 3 * 16 + 384);
  // Transposed, the two offsets change places.
  const auto transposed = layout_of(bits_of(2048, 384, 512, 0), Major::mn);
  EXPECT_EQ(transposed.address(8, 0), 2048u + 384);
  EXPECT_EQ(transposed.address(3, 2), 2048u + 3 * 16 + 2 * 512);
}

TEST(OperandLayout, SwizzlesAsTheAddressSays) {
  const auto wide = layout_of(bits_of(4096, 16, 1024, 1), Major::k);
  EXPECT_EQ(wide.address(0, 0), 4096u);
  EXPECT_EQ(wide.address(1, 0), 4096u + 128 + 16);
  EXPECT_EQ(wide.address(1, 1), 4096u + 128);
  EXPECT_EQ(wide.address(6, 1), 4096u + 6 * 128 + 7 * 16);
  EXPECT_EQ(wide.address(13, 0), 4096u + 1024 + 5 * 128 + 5 * 16);
  const auto middle = layout_of(bits_of(4096, 16, 512, 2), Major::k);
  EXPECT_EQ(middle.address(1, 1), 4096u + 64 + 16);
  EXPECT_EQ(middle.address(2, 0), 4096u + 2 * 64 + 16);
  EXPECT_EQ(middle.address(7, 1), 4096u + 7 * 64 + 2 * 16);
  const auto narrow = layout_of(bits_of(4096, 16, 256, 3), Major::k);
  EXPECT_EQ(narrow.address(3, 1), 4096u + 3 * 32 + 16);
  EXPECT_EQ(narrow.address(4, 1), 4096u + 4 * 32);
  // A step along k begins within the first row.
  const auto second = layout_of(bits_of(4096 + 32, 16, 1024, 1), Major::k);
  EXPECT_EQ(second.address(5, 0), 4096u + 5 * 128 + 7 * 16);
}

TEST(OperandLayout, TransposedPanels) {
  const auto layout = layout_of(bits_of(4096, 8192, 1024, 1), Major::mn);
  EXPECT_EQ(layout.address(2, 3), 4096u + 2 * 128 + 1 * 16);
  EXPECT_EQ(layout.address(2, 8), 4096u + 8192 + 2 * 128 + 2 * 16);
  EXPECT_EQ(layout.address(9, 0), 4096u + 1024 + 128 + 16);
}

TEST(OperandLayout, BaseOffsetMovesThePattern) {
  // The pattern begins at 4096 + 3 · 128; by its own rows it is swizzled like one that begins at 4096.
  const auto moved = layout_of(bits_of(4096 + 384, 16, 1024, 1, 3), Major::k);
  const auto plain = layout_of(bits_of(4096, 16, 1024, 1), Major::k);
  for (int line = 0; line < 8; ++line) {
    for (int piece = 0; piece < 2; ++piece) {
      EXPECT_EQ(moved.address(line, piece), plain.address(line, piece) + 384) << line << " " << piece;
    }
  }
}

TEST(OperandLayout, EveryLayoutIsOneToOne) {
  for (const std::uint64_t mode : {0, 1, 2, 3}) {
    const std::uint64_t span = mode == 0 ? 16 : 256 >> mode;
    for (const Major major : {Major::k, Major::mn}) {
      const bool cores = mode == 0;
      const auto layout =
          major == Major::k
              ? layout_of(bits_of(8192, cores ? 1024 : 16, 8 * span, mode), major)
              : layout_of(bits_of(8192, cores ? 128 : 16 * span, cores ? 256 : 8 * span, mode), major);
      const int lines = major == Major::k ? 64 : 16, pieces = major == Major::k ? 2 : 8;
      std::set<std::uint32_t> seen;
      for (int line = 0; line < lines; ++line) {
        for (int piece = 0; piece < pieces; ++piece) seen.insert(layout.address(line, piece));
      }
      EXPECT_EQ(seen.size(), static_cast<std::size_t>(lines * pieces)) << mode;
    }
  }
}

TEST(MatrixDescriptor, Faults) {
  const auto fault = [](std::uint64_t bits, Major major = Major::k, int pieces = 2) {
    return descriptor_fault(bits, major, pieces);
  };
  EXPECT_EQ(fault(bits_of(4096, 16, 1024, 1)), "");
  EXPECT_EQ(fault(bits_of(4096 + 96, 16, 1024, 1)), "");
  EXPECT_EQ(fault(bits_of(4096, 8192, 1024, 1), Major::mn, 16), "");
  EXPECT_EQ(fault(bits_of(4096 + 64, 8192, 1024, 1), Major::mn, 4), "");
  for (const int bit : {14, 15, 30, 31, 46, 47, 48, 52, 61}) {
    EXPECT_NE(fault(bits_of(4096, 16, 1024, 1) | std::uint64_t{1} << bit).find("must be 0"),
              std::string::npos)
        << bit;
  }
  EXPECT_NE(fault(bits_of(512, 16, 1024, 1)).find("below shared memory"), std::string::npos);
  EXPECT_NE(fault(bits_of(4096, 16, 1024, 0, 2)).find("base offset 2"), std::string::npos);
  EXPECT_NE(fault(bits_of(4096 + 112, 16, 1024, 1)).find("do not fit"), std::string::npos);
  EXPECT_NE(fault(bits_of(4096 + 48, 16, 512, 2)).find("64-byte swizzle"), std::string::npos);
  EXPECT_NE(fault(bits_of(4096 + 16, 16, 256, 3)).find("32-byte swizzle"), std::string::npos);
  EXPECT_NE(fault(bits_of(4096 + 16, 8192, 1024, 1), Major::mn, 16).find("rows or columns"),
            std::string::npos);
}

}  // namespace
}  // namespace jit::emulator
