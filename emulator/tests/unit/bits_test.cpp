#include <algorithm>
#include <cstdint>

#include <gtest/gtest.h>

#include "tests/unit/lane_run.h"

namespace jit::emulator::testing {
namespace {

using U16 = std::uint16_t;
using U32 = std::uint32_t;
using U64 = std::uint64_t;
using S16 = std::int16_t;
using S32 = std::int32_t;
using S64 = std::int64_t;

template <class T>
constexpr int width = 8 * sizeof(T);

template <class T>
class Words : public ::testing::Test {};
using AllWords = ::testing::Types<U16, U32, U64>;
TYPED_TEST_SUITE(Words, AllWords);

TYPED_TEST(Words, Logic) {
  using U = TypeParam;
  const auto type = fmt::format("b{}", width<U>);
  expect_pairs<U, U>("and." + type + " %d, %a, %b;", [](U a, U b) { return U(a & b); });
  expect_pairs<U, U>("or." + type + " %d, %a, %b;", [](U a, U b) { return U(a | b); });
  expect_pairs<U, U>("xor." + type + " %d, %a, %b;", [](U a, U b) { return U(a ^ b); });
  expect_values<U, U>("not." + type + " %d, %a;", [](U a) { return U(~a); });
  expect_values<U, U>("cnot." + type + " %d, %a;", [](U a) { return U(a == 0 ? 1 : 0); });
}

TYPED_TEST(Words, Shifts) {
  using U = TypeParam;
  using S = std::make_signed_t<U>;
  expect_pairs<U, U, U32>(fmt::format("shl.b{} %d, %a, %b;", width<U>),
                          [](U a, U32 by) { return by < width<U> ? U(U64{a} << by) : U{0}; });
  expect_pairs<U, U, U32>(fmt::format("shr.u{} %d, %a, %b;", width<U>),
                          [](U a, U32 by) { return by < width<U> ? U(a >> by) : U{0}; });
  expect_pairs<S, S, U32>(fmt::format("shr.s{} %d, %a, %b;", width<U>),
                          [](S a, U32 by) { return by < width<U> ? S(a >> by) : S(a < 0 ? -1 : 0); });
}

TEST(Bits, FunnelShifts) {
  const auto left = [](U32 low, U32 high, U32 by) {
    return by == 0 ? high : by == 32 ? low : (high << by) | (low >> (32 - by));
  };
  const auto right = [](U32 low, U32 high, U32 by) {
    return by == 0 ? low : by == 32 ? high : (high << (32 - by)) | (low >> by);
  };
  expect_triples<U32, U32>("shf.l.wrap.b32 %d, %a, %b, %c;",
                           [&](U32 a, U32 b, U32 c) { return left(a, b, c & 31); });
  expect_triples<U32, U32>("shf.l.clamp.b32 %d, %a, %b, %c;",
                           [&](U32 a, U32 b, U32 c) { return left(a, b, std::min(c, 32u)); });
  expect_triples<U32, U32>("shf.r.wrap.b32 %d, %a, %b, %c;",
                           [&](U32 a, U32 b, U32 c) { return right(a, b, c & 31); });
  expect_triples<U32, U32>("shf.r.clamp.b32 %d, %a, %b, %c;",
                           [&](U32 a, U32 b, U32 c) { return right(a, b, std::min(c, 32u)); });
}

U32 lookup(U32 a, U32 b, U32 c, int table) {
  U32 result = 0;
  for (int i = 0; i < 32; ++i) {
    const int index = static_cast<int>((a >> i & 1) << 2 | (b >> i & 1) << 1 | (c >> i & 1));
    result |= static_cast<U32>(table >> index & 1) << i;
  }
  return result;
}

TEST(Bits, LookupTablesOfThreeInputs) {
  for (const int table : {0x00, 0x01, 0x80, 0xe8, 0x96, 0xca, 0x1b, 0xff}) {
    expect_triples<U32, U32>(fmt::format("lop3.b32 %d, %a, %b, %c, {};", table),
                             [table](U32 a, U32 b, U32 c) { return lookup(a, b, c, table); });
  }
  for (const char* combine : {"or", "and"}) {
    const bool is_or = std::string_view(combine) == "or";
    expect_triples<U32, U32>(
        fmt::format("setp.gt.u32 %p1, %a, %b;\n  lop3.{}.b32 %r1|%p2, %a, %b, %c, 0x80, %p1;\n"
                    "  selp.b32 %r2, 1, 0, %p2;\n  shl.b32 %r1, %r1, 1;\n  or.b32 %d, %r1, %r2;",
                    combine),
        [is_or](U32 a, U32 b, U32 c) {
          const U32 all = a & b & c;
          const bool other = a > b;
          return all << 1 | U32{is_or ? (all != 0 || other) : (all != 0 && other)};
        });
  }
}

template <class U>
void expect_counts() {
  expect_values<U32, U>(fmt::format("popc.b{} %d, %a;", width<U>), [](U a) {
    U32 count = 0;
    for (; a != 0; a &= a - 1) ++count;
    return count;
  });
  const auto leading = [](U a) {
    U32 count = 0;
    while (count < width<U> && (a >> (width<U> - 1 - count) & 1) == 0) ++count;
    return count;
  };
  expect_values<U32, U>(fmt::format("clz.b{} %d, %a;", width<U>), leading);
  expect_values<U, U>(fmt::format("brev.b{} %d, %a;", width<U>), [](U a) {
    U result = 0;
    for (int i = 0; i < width<U>; ++i) result = static_cast<U>(result << 1 | (a >> i & 1));
    return result;
  });
  for (const bool is_signed : {false, true}) {
    const auto meaning = [=](U a) { return is_signed && (a >> (width<U> - 1)) != 0 ? U(~a) : a; };
    const auto type = fmt::format("{}{}", is_signed ? 's' : 'u', width<U>);
    expect_values<U32, U>("bfind." + type + " %d, %a;", [=](U a) {
      return meaning(a) == 0 ? ~0u : U32(width<U> - 1) - leading(meaning(a));
    });
    expect_values<U32, U>("bfind.shiftamt." + type + " %d, %a;",
                          [=](U a) { return meaning(a) == 0 ? ~0u : leading(meaning(a)); });
  }
}

TEST(Bits, CountsAndPositions) {
  expect_counts<U32>();
  expect_counts<U64>();
}

template <class U>
void expect_fields() {
  // Position and length are taken modulo 256 for words of 32 bits, and the field may reach beyond the word.
  constexpr U32 counts = width<U> == 32 ? 255 : ~0u;
  for (const bool is_signed : {false, true}) {
    expect_triples<U, U, U32, U32>(
        fmt::format("bfe.{}{} %d, %a, %b, %c;", is_signed ? 's' : 'u', width<U>),
        [is_signed](U a, U32 position, U32 length) {
          position &= counts;
          length &= counts;
          const U64 last = std::min<U64>(U64{position} + length - 1, width<U> - 1);
          const U sign = is_signed && length != 0 ? a >> last & 1 : 0;
          U result = 0;
          for (U32 i = 0; i < width<U>; ++i) {
            const U bit = i < length && U64{position} + i < width<U> ? a >> (position + i) & 1 : sign;
            result |= bit << i;
          }
          return result;
        });
  }
  for (const U32 length : {0u, 1u, 5u, 31u, 32u, 40u, 64u, 300u}) {
    expect_triples<U, U, U, U32>(fmt::format("bfi.b{} %d, %a, %b, %c, {};", width<U>, length),
                                 [length](U from, U into, U32 position) {
                                   for (U32 i = 0; i < (length & counts); ++i) {
                                     const U64 at = U64{position & counts} + i;
                                     if (at >= width<U>) break;
                                     into = static_cast<U>((into & ~(U{1} << at)) | (from >> i & 1) << at);
                                   }
                                   return into;
                                 });
  }
}

TEST(Bits, Fields) {
  expect_fields<U32>();
  expect_fields<U64>();
}

TEST(Bits, Masks) {
  expect_pairs<U32, U32>("bmsk.wrap.b32 %d, %a, %b;", [](U32 position, U32 length) {
    U32 result = 0;
    for (U32 i = position & 31; i < std::min((position & 31) + (length & 31), 32u); ++i) result |= 1u << i;
    return result;
  });
  expect_pairs<U32, U32>("bmsk.clamp.b32 %d, %a, %b;", [](U32 position, U32 length) {
    U32 result = 0;
    for (U64 i = position; i < std::min(U64{position} + length, U64{32}); ++i) result |= 1u << i;
    return result;
  });
}

TEST(Bits, ExtensionOfASign) {
  for (const bool clamps : {false, true}) {
    for (const bool is_signed : {false, true}) {
      expect_pairs<U32, U32>(
          fmt::format("szext.{}.{}32 %d, %a, %b;", clamps ? "clamp" : "wrap", is_signed ? 's' : 'u'),
          [=](U32 a, U32 length) {
            if (clamps && length >= 32) return a;
            length &= 31;
            if (length == 0) return 0u;
            const U32 kept = a & ((1u << length) - 1);
            return is_signed && (kept >> (length - 1)) != 0 ? kept | ~0u << length : kept;
          });
    }
  }
}

TEST(Bits, NthSetBit) {
  std::vector<U32> masks, bases;
  std::vector<S32> offsets;
  std::mt19937 random(1);
  for (int i = 0; i < 20000; ++i) {
    masks.push_back(i % 5 == 0 ? random() & random() & random() : random());
    bases.push_back(random() % 32);
    offsets.push_back(static_cast<S32>(random() % 41) - 20);
  }
  expect_lanes<U32>(
      "fns.b32 %d, %a, %b, %c;",
      [](U32 mask, U32 base, S32 offset) {
        std::vector<U32> found;  // set bits on the way
        if (offset >= 0) {
          for (U32 i = base; i < 32; ++i) {
            if ((mask >> i & 1) != 0) found.push_back(i);
          }
        } else {
          for (U32 i = base + 1; i-- > 0;) {
            if ((mask >> i & 1) != 0) found.push_back(i);
          }
        }
        if (offset == 0) return !found.empty() && found[0] == base ? base : ~0u;
        const auto index = static_cast<std::size_t>(offset < 0 ? -offset : offset) - 1;
        return index < found.size() ? found[index] : ~0u;
      },
      masks, bases, offsets);
}

U32 byte_of(U32 a, U32 b, U32 index) { return static_cast<U32>((U64{b} << 32 | a) >> (8 * index)) & 0xff; }

TEST(Bits, Permutations) {
  expect_triples<U32, U32>("prmt.b32 %d, %a, %b, %c;", [](U32 a, U32 b, U32 c) {
    U32 result = 0;
    for (U32 i = 0; i < 4; ++i) {
      const U32 choice = c >> (4 * i) & 15;
      const U32 byte = byte_of(a, b, choice & 7);
      result |= (choice < 8 ? byte : (byte & 0x80) != 0 ? 0xffu : 0u) << (8 * i);
    }
    return result;
  });
  // Which byte goes where, lowest first, by mode and selector ("prmt", table of modes).
  struct Mode {
    const char* name;
    U32 bytes[4][4];
  };
  for (const Mode& mode : {
           Mode{"f4e", {{0, 1, 2, 3}, {1, 2, 3, 4}, {2, 3, 4, 5}, {3, 4, 5, 6}}},
           Mode{"b4e", {{0, 7, 6, 5}, {1, 0, 7, 6}, {2, 1, 0, 7}, {3, 2, 1, 0}}},
           Mode{"rc8", {{0, 0, 0, 0}, {1, 1, 1, 1}, {2, 2, 2, 2}, {3, 3, 3, 3}}},
           Mode{"ecl", {{0, 1, 2, 3}, {1, 1, 2, 3}, {2, 2, 2, 3}, {3, 3, 3, 3}}},
           Mode{"ecr", {{0, 0, 0, 0}, {0, 1, 1, 1}, {0, 1, 2, 2}, {0, 1, 2, 3}}},
           Mode{"rc16", {{0, 1, 0, 1}, {2, 3, 2, 3}, {0, 1, 0, 1}, {2, 3, 2, 3}}},
       }) {
    expect_triples<U32, U32>(fmt::format("prmt.b32.{} %d, %a, %b, %c;", mode.name),
                             [&mode](U32 a, U32 b, U32 c) {
                               U32 result = 0;
                               for (U32 i = 0; i < 4; ++i) {
                                 result |= byte_of(a, b, mode.bytes[c & 3][i]) << (8 * i);
                               }
                               return result;
                             });
  }
}

TEST(Bits, WrongFormsAreRefused) {
  for (const char* instruction :
       {"and.u32 %r1, %r2, %r3;", "lop3.b32 %r1, %r2, %r3, %r4, 256;", "shf.l.b32 %r1, %r2, %r3, %r4;",
        "bfe.u16 %h1, %h2, %r1, %r2;", "lop3.or.b32 %r1, %r2, %r3, %r4, 1, %p1;", "popc.b16 %r1, %h1;"}) {
    EXPECT_THROW(Module(kernel_of(std::string("  ") + instruction), {9, 0, 'a'}), PtxError) << instruction;
  }
}

}  // namespace
}  // namespace jit::emulator::testing
