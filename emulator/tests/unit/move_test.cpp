#include <cstdint>

#include <gtest/gtest.h>

#include "machine/address_space.h"
#include "tests/unit/lane_run.h"

namespace jit::emulator::testing {
namespace {

using U8 = std::uint8_t;
using U16 = std::uint16_t;
using U32 = std::uint32_t;
using U64 = std::uint64_t;

TEST(Move, Copies) {
  expect_values<U16, U16>("mov.u16 %d, %a;", [](U16 x) { return x; });
  expect_values<U32, U32>("mov.b32 %d, %a;", [](U32 x) { return x; });
  expect_values<U64, U64>("mov.f64 %d, %a;", [](U64 x) { return x; });
  expect_values<U32, U32>("mov.f32 %d, 0fBF800000;", [](U32) { return 0xbf800000u; });
  expect_values<U64, U64>("mov.f64 %d, 0d3FF0000000000000;", [](U64) { return U64{0x3ff0000000000000}; });
  expect_values<U16, U16>("mov.u16 %d, -3;", [](U16) { return U16{0xfffd}; });
  expect_values<U64, U64>("mov.u64 %d, -3;", [](U64) { return ~U64{2}; });
}

TEST(Move, Packing) {
  expect_pairs<U32, U16>("mov.b32 %d, {%a, %b};", [](U16 a, U16 b) { return a | U32{b} << 16; });
  expect_pairs<U64, U32>("mov.b64 %d, {%a, %b};", [](U32 a, U32 b) { return a | U64{b} << 32; });
  expect_pairs<U64, U16>("mov.b64 %d, {%a, %b, %b, %a};",
                         [](U16 a, U16 b) { return a | U64{b} << 16 | U64{b} << 32 | U64{a} << 48; });
  expect_pairs<U32, U16>("mov.b32 %d, {%a, 7};", [](U16 a, U16) { return a | 7u << 16; });
}

TEST(Move, Unpacking) {
  expect_values<U32, U32>("mov.b32 {%h1, %h2}, %a;\n  mov.b32 %d, {%h2, %h1};",
                          [](U32 x) { return x << 16 | x >> 16; });
  expect_values<U64, U64>("mov.b64 {%r1, %r2}, %a;\n  mov.b64 %d, {%r2, %r1};",
                          [](U64 x) { return x << 32 | x >> 32; });
  expect_values<U64, U64>(
      "mov.b64 {%h1, %h2, %h3, %h4}, %a;\n  mov.b64 %d, {%h4, %h3, %h2, %h1};",
      [](U64 x) { return x << 48 | (x & 0xffff0000) << 16 | (x >> 16 & 0xffff0000) | x >> 48; });
  expect_values<U16, U32>("mov.b32 {_, %d}, %a;", [](U32 x) { return static_cast<U16>(x >> 16); });
  const std::string bytes = "  .reg .b8 %c<8>;\n";
  expect_values<U32, U32>(bytes + "  mov.b32 {%c1, %c2, %c3, %c4}, %a;\n  mov.b32 %d, {%c4, %c3, %c2, %c1};",
                          [](U32 x) { return __builtin_bswap32(x); });
  expect_values<U16, U16>(bytes + "  mov.b16 {%c1, %c2}, %a;\n  mov.b16 %d, {%c2, %c1};",
                          [](U16 x) { return static_cast<U16>(x << 8 | x >> 8); });
}

TEST(Move, OnlyLanesThatExecute) {
  expect_pairs<U64, U64>(
      "mov.u64 %d, %b;\n  setp.lt.u64 %p1, %a, 50;\n  @%p1 mov.u64 %d, %a;\n"
      "  @%p1 mov.b64 {%r1, %r2}, %d;\n  @!%p1 mov.b64 {%r2, %r1}, %d;\n  mov.b64 %d, {%r1, %r2};",
      [](U64 a, U64 b) { return a < 50 ? a : b << 32 | b >> 32; });
}

TEST(Move, ClocksDoNotGoBack) {
  std::vector<U32> values(64);
  const auto results = run_lanes<U32>(
      "mov.u64 %rd1, %clock64;\n  mov.u32 %r1, %clock;\n  mov.u32 %r5, 3000;\nloop:\n  sub.u32 %r5, %r5, 1;\n"
      "  setp.ne.u32 %p1, %r5, 0;\n  @%p1 bra loop;\n  mov.u32 %r2, %clock;\n  mov.u64 %rd2, %globaltimer;\n"
      "  mov.u32 %r3, %clock_hi;\n  mov.u32 %r4, %globaltimer_lo;\n  setp.gt.u32 %p2, %r2, %r1;\n"
      "  setp.gt.and.u64 %p2, %rd2, %rd1, %p2;\n  setp.gt.and.u32 %p2, %r4, %r1, %p2;\n"
      "  setp.eq.and.u32 %p2, %r3, 0, %p2;\n  selp.u32 %d, 1, 0, %p2;",
      values);
  EXPECT_EQ(results, std::vector<U32>(64, 1));
}

// A kernel with a variable in each space; what `body` leaves in %r1 is stored by each thread.
std::vector<U32> run_with_variables(const std::string& body, unsigned cluster = 1) {
  TestDevice device;
  LaunchShape shape;
  shape.block = {32, 1, 1};
  shape.grid = {cluster, 1, 1};
  shape.cluster = {cluster, 1, 1};
  const auto out = device.room<U32>(32 * cluster);
  const auto result =
      device.run(kernel_of("  .shared .align 8 .b8 tile[64];\n  .local .align 8 .b8 own[16];\n" + body +
                               "\n  mov.u32 %r61, %ctaid.x;\n  mad.lo.u32 %r62, %r61, 32, %r60;\n"
                               "  mad.wide.u32 %rd59, %r62, 4, %rd61;\n  st.global.u32 [%rd59], %r1;\n",
                           ".global .align 4 .u32 counter = 7;\n"),
                 shape, {}, out, out);
  for (const Finding& finding : result.findings) ADD_FAILURE() << to_string(finding) << "\n" << body;
  return device.download<U32>(out, 32 * cluster);
}

TEST(Address, GenericAddressesLeadBack) {
  // Stored through .shared, loaded through the generic address, and the other way round for .local.
  const auto own_lane = run_with_variables(
      "  mov.u32 %r2, tile;\n  cvt.u64.u32 %rd1, %r2;\n  cvta.shared.u64 %rd2, %rd1;\n"
      "  setp.eq.u32 %p1, %r60, 0;\n  @%p1 st.shared.u32 [tile+4], 41;\n  bar.sync 0;\n"
      "  ld.u32 %r1, [%rd2+4];\n  cvta.to.shared.u64 %rd3, %rd2;\n  setp.ne.u64 %p2, %rd1, %rd3;\n"
      "  @%p2 mov.u32 %r1, 0;");
  EXPECT_EQ(own_lane, std::vector<U32>(32, 41));
  const auto local = run_with_variables(
      "  mov.u64 %rd1, own;\n  cvta.local.u64 %rd2, %rd1;\n  st.u32 [%rd2+8], %r60;\n"
      "  ld.local.u32 %r1, [own+8];\n  cvta.to.local.u64 %rd3, %rd2;\n  setp.ne.u64 %p2, %rd1, %rd3;\n"
      "  @%p2 mov.u32 %r1, 99;");
  for (U32 lane = 0; lane < 32; ++lane) EXPECT_EQ(local[lane], lane);
  const auto global = run_with_variables(
      "  mov.u64 %rd1, counter;\n  cvta.global.u64 %rd2, %rd1;\n  ld.u32 %r1, [%rd2];\n"
      "  cvta.to.global.u64 %rd3, %rd2;\n  setp.ne.u64 %p2, %rd1, %rd3;\n  @%p2 mov.u32 %r1, 99;");
  EXPECT_EQ(global, std::vector<U32>(32, 7));
}

TEST(Address, TheSpaceOfAGenericAddress) {
  // Bits 0 … 5: global, shared, shared::cta, shared::cluster, local, param.
  const std::string tests =
      "  mov.u32 %r1, 0;\n"
      "  isspacep.global %p1, %rd2;\n  @%p1 or.b32 %r1, %r1, 1;\n"
      "  isspacep.shared %p1, %rd2;\n  @%p1 or.b32 %r1, %r1, 2;\n"
      "  isspacep.shared::cta %p1, %rd2;\n  @%p1 or.b32 %r1, %r1, 4;\n"
      "  isspacep.shared::cluster %p1, %rd2;\n  @%p1 or.b32 %r1, %r1, 8;\n"
      "  isspacep.local %p1, %rd2;\n  @%p1 or.b32 %r1, %r1, 16;\n"
      "  isspacep.param %p1, %rd2;\n  @%p1 or.b32 %r1, %r1, 32;\n";
  const auto bits_of = [&](const std::string& address) { return run_with_variables(address + tests)[3]; };
  EXPECT_EQ(bits_of("  mov.u64 %rd1, counter;\n  cvta.global.u64 %rd2, %rd1;\n"), 1u);
  EXPECT_EQ(bits_of("  mov.u64 %rd1, tile;\n  cvta.shared.u64 %rd2, %rd1;\n"), 14u);
  EXPECT_EQ(bits_of("  mov.u64 %rd1, own;\n  cvta.local.u64 %rd2, %rd1;\n"), 16u);
  EXPECT_EQ(bits_of("  mov.b64 %rd1, in;\n  cvta.param.u64 %rd2, %rd1;\n"), 32u);
  EXPECT_EQ(bits_of("  mov.u64 %rd2, %rd61;\n"), 1u);
}

TEST(Address, OtherBlocksOfTheCluster) {
  // Each block maps its variable to its neighbor and asks whose it is, both ways of addressing.
  const auto ranks = run_with_variables(
      "  mov.u32 %r2, %cluster_ctarank;\n  xor.b32 %r3, %r2, 1;\n  mov.u32 %r4, tile;\n"
      "  mapa.shared::cluster.u32 %r5, %r4, %r3;\n  getctarank.shared::cluster.u32 %r6, %r5;\n"
      "  cvt.u64.u32 %rd1, %r4;\n  cvta.shared.u64 %rd2, %rd1;\n  mapa.u64 %rd3, %rd2, %r3;\n"
      "  getctarank.u64 %r7, %rd3;\n  getctarank.u64 %r8, %rd2;\n  isspacep.shared::cta %p1, %rd3;\n"
      "  isspacep.shared::cluster %p2, %rd3;\n  cvta.shared::cluster.u64 %rd4, %rd1;\n"
      "  mad.lo.u32 %r1, %r7, 10, %r6;\n  mad.lo.u32 %r1, %r8, 100, %r1;\n  @%p1 add.u32 %r1, %r1, 1000;\n"
      "  @!%p2 add.u32 %r1, %r1, 1000;",
      2);
  EXPECT_EQ(ranks[0], 11u);    // of block 0: the neighbor's rank twice, and its own
  EXPECT_EQ(ranks[32], 100u);  // of block 1
}

TEST(Address, AWrongRankOrSpaceStopsTheLaunch) {
  const auto findings = [](const std::string& body) {
    TestDevice device;
    LaunchShape shape;
    shape.block = {32, 1, 1};
    shape.grid = {2, 1, 1};
    shape.cluster = {2, 1, 1};
    const auto out = device.room<U32>(1);
    return device
        .run(kernel_of("  .shared .align 8 .b8 tile[64];\n  mov.u64 %rd1, tile;\n" + body), shape, {}, out,
             out)
        .findings;
  };
  const auto rank = findings("  mapa.shared::cluster.u64 %rd2, %rd1, 2;");
  ASSERT_FALSE(rank.empty());
  EXPECT_EQ(rank[0].kind, FindingKind::illegal_instruction);
  EXPECT_NE(rank[0].message.find("block 2"), std::string::npos) << rank[0].message;
  const auto space = findings("  mapa.u64 %rd2, %rd61, 1;");
  ASSERT_FALSE(space.empty());
  EXPECT_EQ(space[0].kind, FindingKind::illegal_instruction);
  EXPECT_FALSE(findings("  getctarank.u64 %r1, %rd61;").empty());
  EXPECT_TRUE(findings("  mapa.shared::cluster.u64 %rd2, %rd1, 1;").empty());
}

TEST(Move, WrongFormsAreRefused) {
  for (const char* instruction :
       {"mov.b32 %r1, {%r2, %r3};", "mov.b64 {%r1, %r2, %r3}, %rd1;", "mov.u32 %r1, %rd1;",
        "mov.u32 %r1, %clock64;", "mov.u32 %r1, nowhere;", "mov.b32 {%r1, %h1}, %rd1;",
        "cvta.u64 %rd1, %rd2;", "isspacep.const %p1, %rd1;", "mapa.u32 %r1, %r2, 0;", "mov.u32 %r1, %p1;"}) {
    EXPECT_THROW(Module(kernel_of(std::string("  ") + instruction), {9, 0, 'a'}), PtxError) << instruction;
  }
}

}  // namespace
}  // namespace jit::emulator::testing
