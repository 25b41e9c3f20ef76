#include "operations/copies/tensor_map.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <set>
#include <string>

namespace jit::emulator {
namespace {

TensorMap plain() {
  TensorMap map;
  map.element = TensorMap::Element::bf16;
  map.rank = 3;
  map.address = 0x1000'0000'0100;
  map.dimensions = {64, 1000, 7, 1, 1};
  map.strides = {128, 128000, 0, 0};
  map.box = {64, 128, 1, 1, 1};
  map.swizzle = TensorMap::Swizzle::bytes128;
  return map;
}

TEST(TensorMap, ComesBackFromItsBytes) {
  std::mt19937 random(1);
  const auto below = [&](std::uint32_t bound) { return random() % bound; };
  for (int round = 0; round < 200; ++round) {
    TensorMap map;
    const TensorMap::Element elements[] = {TensorMap::Element::u8,      TensorMap::Element::f16,
                                           TensorMap::Element::f32,     TensorMap::Element::s64,
                                           TensorMap::Element::f32_ftz, TensorMap::Element::bf16};
    map.element = elements[below(6)];
    map.rank = 1 + below(5);
    map.address = 16 * (1 + below(1u << 30));
    for (std::uint32_t i = 0; i < map.rank; ++i) {
      map.dimensions[i] = below(4) == 0 ? std::uint64_t{1} << 32 : 1 + below(100000);
      map.box[i] = 1 + below(256);
      map.element_strides[i] = 1 + below(8);
    }
    map.box[0] = 16;
    for (std::uint32_t i = 0; i + 1 < map.rank; ++i) map.strides[i] = std::uint64_t{16} * below(1u << 30);
    map.l2_promotion = static_cast<TensorMap::L2Promotion>(below(4));
    ASSERT_EQ(validate(map), std::nullopt);
    const auto bytes = encode(map);
    ASSERT_EQ(decode(bytes), map);
  }
}

TEST(TensorMap, ForeignOrChangedBytesAreRefused) {
  std::array<std::byte, tensor_map_bytes> bytes = {};
  EXPECT_FALSE(decode(bytes));
  const auto good = encode(plain());
  ASSERT_TRUE(decode(good));
  for (std::size_t i = 0; i < good.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      bytes = good;
      bytes[i] ^= static_cast<std::byte>(1 << bit);
      EXPECT_FALSE(decode(bytes)) << "byte " << i << " bit " << bit;
    }
  }
}

TEST(TensorMap, EachRuleIsToldInASentence) {
  struct Case {
    std::function<void(TensorMap&)> change;
    const char* says;
  };
  const Case cases[] = {
      {[](TensorMap& m) { m.rank = 0; }, "rank 0"},
      {[](TensorMap& m) { m.rank = 6; }, "rank 6"},
      {[](TensorMap& m) { m.address += 8; }, "multiple of 16"},
      {[](TensorMap& m) { m.address = 0; }, "not 0"},
      {[](TensorMap& m) { m.dimensions[1] = 0; }, "globalDim[1] = 0"},
      {[](TensorMap& m) { m.dimensions[2] = (std::uint64_t{1} << 32) + 1; }, "globalDim[2] = 4294967297"},
      {[](TensorMap& m) { m.box[1] = 0; }, "boxDim[1] = 0"},
      {[](TensorMap& m) { m.box[1] = 257; }, "boxDim[1] = 257"},
      {[](TensorMap& m) { m.element_strides[1] = 0; }, "elementStrides[1] = 0"},
      {[](TensorMap& m) { m.element_strides[1] = 9; }, "elementStrides[1] = 9"},
      {[](TensorMap& m) { m.strides[0] = 136; }, "globalStrides[0] = 136"},
      {[](TensorMap& m) { m.strides[1] = std::uint64_t{1} << 40; }, "globalStrides[1] = 1099511627776"},
      {[](TensorMap& m) { m.box[0] = 12; }, "12 elements of 2 bytes"},
      {[](TensorMap& m) { m.box[0] = 72; }, "make boxDim[0] = 64"},
      {[](TensorMap& m) { m.swizzle = TensorMap::Swizzle::bytes32; }, "make boxDim[0] = 16"},
      {[](TensorMap& m) { m.swizzle = TensorMap::Swizzle::bytes64; }, "make boxDim[0] = 32"},
      {[](TensorMap& m) { m.swizzle = TensorMap::Swizzle::bytes128_atom32; }, "does not model swizzle 4"},
      {[](TensorMap& m) { m.swizzle = static_cast<TensorMap::Swizzle>(7); }, "swizzle 7 is none"},
      {[](TensorMap& m) { m.interleave = TensorMap::Interleave::bytes16; }, "interleave NONE only"},
      {[](TensorMap& m) { m.interleave = static_cast<TensorMap::Interleave>(3); }, "interleave 3 is none"},
      {[](TensorMap& m) { m.l2_promotion = static_cast<TensorMap::L2Promotion>(4); }, "L2 promotion 4"},
      {[](TensorMap& m) { m.out_of_bounds = static_cast<TensorMap::OutOfBounds>(2); }, "fill 2 is none"},
      {[](TensorMap& m) { m.element = static_cast<TensorMap::Element>(16); }, "data type 16 is none"},
      {[](TensorMap& m) { m.element = TensorMap::Element::u4x16_align8; }, "less than a byte"},
      {[](TensorMap& m) { m.element = TensorMap::Element::tf32; }, "TFLOAT32"},
      {[](TensorMap& m) {
         m.element = TensorMap::Element::u16;
         m.out_of_bounds = TensorMap::OutOfBounds::nan;
       },
       "NaN"},
  };
  ASSERT_EQ(validate(plain()), std::nullopt);
  for (const Case& test : cases) {
    TensorMap map = plain();
    test.change(map);
    const std::optional<std::string> message = validate(map);
    ASSERT_TRUE(message) << test.says;
    EXPECT_NE(message->find(test.says), std::string::npos) << *message << " lacks: " << test.says;
  }
}

TEST(TensorMap, StridesCountForTheRankOnly) {
  TensorMap map = plain();
  map.strides[2] = 5;
  map.dimensions[3] = 0;
  EXPECT_EQ(validate(map), std::nullopt);
}

// Swizzles as the driver API describes them: 16-byte pieces change places within rows of 32, 64 or 128 bytes.
TEST(TensorMap, SwizzlesPermutePiecesWithinTheirSpan) {
  for (const auto swizzle :
       {TensorMap::Swizzle::bytes32, TensorMap::Swizzle::bytes64, TensorMap::Swizzle::bytes128}) {
    const std::uint32_t span = swizzle_span(swizzle);
    std::set<std::uint32_t> seen;
    for (std::uint32_t offset = 0; offset < 4096; offset += 16) {
      const std::uint32_t at = swizzled(swizzle, offset);
      EXPECT_EQ(at / span, offset / span);
      EXPECT_EQ(swizzled(swizzle, offset + 5), at + 5);
      EXPECT_TRUE(seen.insert(at).second);
    }
    // Eight rows further the pattern repeats, at the latest.
    EXPECT_EQ(swizzled(swizzle, 1024 + 48), 1024 + swizzled(swizzle, 48));
  }
  // Row 3 of a 128-byte tile: piece x lies at 3 ^ x.
  EXPECT_EQ(swizzled(TensorMap::Swizzle::bytes128, 3 * 128 + 5 * 16), 3 * 128 + (3 ^ 5) * 16u);
  // Rows of 64 bytes: two of them share the 128 bytes that decide.
  EXPECT_EQ(swizzled(TensorMap::Swizzle::bytes64, 5 * 64 + 1 * 16), 5 * 64 + (1 ^ 2) * 16u);
  EXPECT_EQ(swizzled(TensorMap::Swizzle::bytes32, 4 * 32), 4 * 32 + 16u);
  EXPECT_EQ(swizzled(TensorMap::Swizzle::none, 12345), 12345u);
}

}  // namespace
}  // namespace jit::emulator
