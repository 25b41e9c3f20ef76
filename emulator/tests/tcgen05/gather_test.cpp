// Bulk copies of sm_100: rows that are gathered, and mbarriers of the other block of a pair.
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/bulk_tensor_run.h"

namespace jit::emulator::testing {
namespace {

constexpr std::uint32_t columns = 64, rows = 40;
constexpr std::size_t bytes = 4 * columns * 2;

// Rows of 64 16-bit numbers: 100 · row + column.
TensorMap map_of(TestDevice& device, std::uint32_t box_rows) {
  std::vector<std::uint16_t> numbers;
  for (std::uint32_t i = 0; i < rows * columns; ++i) {
    numbers.push_back(static_cast<std::uint16_t>(i / columns * 100 + i % columns));
  }
  TensorMap map;
  map.element = TensorMap::Element::u16;
  map.rank = 2;
  map.address = device.upload(numbers);
  map.dimensions = {columns, rows, 1, 1, 1};
  map.strides = {columns * 2};
  map.box = {columns, box_rows, 1, 1, 1};
  map.swizzle = TensorMap::Swizzle::bytes128;
  return map;
}

std::string gather_kernel() {
  std::string ptx = load_kernel(5, bytes, ".tile::gather4");
  const auto replace = [&](const std::string& from, const std::string& to) {
    for (std::size_t at; (at = ptx.find(from)) != std::string::npos;) ptx.replace(at, from.size(), to);
  };
  replace(".target sm_90a", ".target sm_100a");
  replace("tensor.5d.shared", "tensor.2d.shared");
  const std::size_t prefetch = ptx.find("  @%p1 cp.async.bulk.prefetch");
  ptx.erase(prefetch, ptx.find('\n', prefetch) - prefetch);
  return ptx;
}

TEST(Gather, TakesFourRows) {
  TestDevice device({10, 0, 'a'});
  const std::array<std::int32_t, 5> at = {0, 7, 39, -1, 40};
  const std::uint64_t out = device.room<std::uint8_t>(bytes);
  const LaunchResult result =
      device.run(gather_kernel(), {.block = {32, 1, 1}, .dynamic_smem_bytes = smem_bytes}, {},
                 MapParameter{encode(map_of(device, 1))}, out, at);
  ASSERT_EQ(findings_of(result), "");
  const auto got = device.download<std::uint16_t>(out, bytes / 2);
  for (std::uint32_t row = 0; row < 4; ++row) {
    for (std::uint32_t column = 0; column < columns; ++column) {
      const std::uint32_t place = place_of(TensorMap::Swizzle::bytes128, (row * columns + column) * 2) / 2;
      const auto expected =
          row < 2 ? static_cast<std::uint16_t>(at[row + 1] * 100 + static_cast<int>(column)) : 0;
      EXPECT_EQ(got[place], expected) << row << " " << column;
    }
  }
}

TEST(Gather, WantsBoxesOfOneRow) {
  TestDevice device({10, 0, 'a'});
  const std::array<std::int32_t, 5> at = {0, 1, 2, 3, 4};
  const std::uint64_t out = device.room<std::uint8_t>(bytes);
  const LaunchResult result =
      device.run(gather_kernel(), {.block = {32, 1, 1}, .dynamic_smem_bytes = smem_bytes}, {},
                 MapParameter{encode(map_of(device, 4))}, out, at);
  EXPECT_NE(message_of(result, FindingKind::bad_descriptor).find("boxes of 1 row"), std::string::npos);
}

// Each of two blocks loads 4 rows, and both count at the mbarrier of the first one.
TEST(PairCopies, SignalTheLeader) {
  const auto ptx = [](const std::string& group, int expected) {
    std::string text = kernel_with_map(
        init_by_first("bar", 1) +
        "  barrier.cluster.arrive.aligned;\n  barrier.cluster.wait.aligned;\n"
        "  mov.u32 %r61, %cluster_ctarank;\n  setp.eq.and.u32 %p2, %r61, 0, %p1;\n  and.b32 %r3, %r2, "
        "0xfeffffff;\n"
        "  @%p2 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], " +
        std::to_string(expected) +
        ";\n  @%p1 cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes" + group +
        " [%r1], [%rd2, {%r50, %r51}], [%r3];\n  setp.ne.u32 %p4, %r61, 0;\n  @%p4 bra MEET;\n" +
        wait_for("%r2", "0", "WAIT") +
        "MEET:\n  barrier.cluster.arrive.aligned;\n  barrier.cluster.wait.aligned;\n"
        "  shl.b32 %r4, %r60, 2;\n  add.u32 %r4, %r4, %r1;\n  ld.shared.u32 %r5, [%r4];\n"
        "  mul.wide.u32 %rd3, %r60, 4;\n  add.u64 %rd3, %rd3, %rd61;\n  mul.wide.u32 %rd4, %r61, 128;\n"
        "  add.u64 %rd3, %rd3, %rd4;\n  st.global.u32 [%rd3], %r5;\n");
    const std::size_t target = text.find(".target sm_90a");
    return text.replace(target, 14, ".target sm_100a");
  };
  const auto run = [&](const std::string& text) {
    TestDevice device({10, 0, 'a'});
    const std::array<std::int32_t, 5> at = {};
    const std::uint64_t out = device.room<std::uint32_t>(64);
    const LaunchResult result = device.run(
        text,
        {.grid = {2, 1, 1}, .block = {32, 1, 1}, .cluster = {2, 1, 1}, .dynamic_smem_bytes = smem_bytes}, {},
        MapParameter{encode(map_of(device, 4))}, out, at);
    for (const std::uint32_t i : {0u, 31u, 32u, 63u}) {
      if (!result.findings.empty()) break;
      EXPECT_EQ(device.download<std::uint16_t>(out, 128)[2 * i + 1], i % 32 * 2 + 1);
    }
    return findings_of(result);
  };
  EXPECT_EQ(run(ptx(".cta_group::2", 2 * static_cast<int>(bytes))), "");
  // The phase ends with the bytes of one block, and the other one's are still to come.
  EXPECT_NE(run(ptx(".cta_group::2", static_cast<int>(bytes))), "");
  EXPECT_NE(run(ptx(".cta_group::1", 2 * static_cast<int>(bytes))).find("both must be in the same"),
            std::string::npos);
}

}  // namespace
}  // namespace jit::emulator::testing
