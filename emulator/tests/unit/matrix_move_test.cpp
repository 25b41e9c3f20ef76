// ldmatrix, stmatrix and movmatrix beside their definition, element by element.
#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/ptx_run.h"
#include "tests/unit/async_ptx.h"

namespace jit::emulator::testing {
namespace {

std::string list(const std::string& prefix, int count) {
  std::string text = "{";
  for (int i = 0; i < count; ++i) text += (i == 0 ? "" : ", ") + prefix + std::to_string(i);
  return text + "}";
}

// 32 rows of 8 elements: row 8 m + r of matrix m, at places in shared memory that `order` shuffles.
struct Rows {
  std::vector<std::uint16_t> elements = std::vector<std::uint16_t>(256);
  std::vector<std::uint32_t> place = std::vector<std::uint32_t>(32);  ///< of each row, in units of 16 bytes

  explicit Rows(unsigned seed) {
    std::mt19937 random(seed);
    for (auto& element : elements) element = static_cast<std::uint16_t>(random());
    for (std::uint32_t i = 0; i < 32; ++i) place[i] = i;
    std::shuffle(place.begin(), place.end(), random);
  }
  std::uint16_t at(std::size_t matrix, std::size_t row, std::size_t column) const {
    return elements[(matrix * 8 + row) * 8 + column];
  }
};

// The fragment of lane i: elements of row i / 4, columns 2 (i % 4) and the next; of the transposed matrix
// where asked.
std::uint32_t fragment(const Rows& rows, std::size_t matrix, std::size_t lane, bool transposed) {
  const std::size_t row = lane / 4, column = lane % 4 * 2;
  const std::uint32_t low = transposed ? rows.at(matrix, column, row) : rows.at(matrix, row, column);
  const std::uint32_t high = transposed ? rows.at(matrix, column + 1, row) : rows.at(matrix, row, column + 1);
  return low | high << 16;
}

// Lane i: %r1 the address of row i; %r2 16 bytes for the lane.
const std::string addresses = R"(
  mov.u32 %r0, buffer;
  mad.wide.u32 %rd0, %r60, 4, %rd61;
  ld.global.u32 %r1, [%rd0];
  mad.lo.u32 %r1, %r1, 16, %r0;
  mad.wide.u32 %rd1, %r60, 16, %rd60;
)";
constexpr char buffer[] = ".shared .align 16 .b8 buffer[512];\n";

TEST(MatrixMove, LdmatrixLoadsFragments) {
  for (const int count : {1, 2, 4}) {
    for (const bool transposed : {false, true}) {
      for (const std::string space : {".shared", ".shared::cta", ""}) {
        const Rows rows(static_cast<unsigned>(count) + (transposed ? 10 : 0));
        TestDevice device;
        const std::uint64_t in = device.upload(rows.elements), places = device.upload(rows.place);
        const std::string n = std::to_string(count);
        std::string body = addresses + R"(
  ld.global.v4.b32 {%r4, %r5, %r6, %r7}, [%rd1];
  st.shared.v4.b32 [%r1], {%r4, %r5, %r6, %r7};
  bar.warp.sync 0xffffffff;
  cvt.u64.u32 %rd2, %r1;
  cvta.shared.u64 %rd2, %rd2;
)";
        // Rows that are not asked for may have any address.
        if (count < 4) {
          body += "setp.ge.u32 %p0, %r60, " + std::to_string(8 * count) +
                  ";\n@%p0 mov.u32 %r1, 0;\n@%p0 mov.u64 %rd2, 0;\n";
        }
        body += "ldmatrix.sync.aligned.m8n8.x" + n + (transposed ? ".trans" : "") + space + ".b16 " +
                list("%r1", count) + ", [" + (space.empty() ? "%rd2" : "%r1") + "];\n";
        for (int i = 0; i < count; ++i) {
          body +=
              "st.global.b32 [%rd0+" + std::to_string(128 * (i + 1)) + "], %r1" + std::to_string(i) + ";\n";
        }
        std::vector<std::uint32_t> image = rows.place;
        image.resize(32 * 5);
        const std::uint64_t out = device.upload(image);
        const LaunchResult result = device.run(kernel_of(body, buffer), {.block = {32, 1, 1}}, {}, in, out);
        ASSERT_EQ(findings_of(result), "") << body;
        const auto loaded = device.download<std::uint32_t>(out, 32 * 5);
        for (std::size_t m = 0; m < static_cast<std::size_t>(count); ++m) {
          for (std::size_t lane = 0; lane < 32; ++lane) {
            ASSERT_EQ(loaded[32 * (m + 1) + lane], fragment(rows, m, lane, transposed))
                << body << m << " " << lane;
          }
        }
        ASSERT_TRUE(device.memory().free(places));
      }
    }
  }
}

TEST(MatrixMove, StmatrixStoresThem) {
  for (const int count : {1, 2, 4}) {
    for (const bool transposed : {false, true}) {
      const Rows rows(20 + static_cast<unsigned>(count) + (transposed ? 10 : 0));
      TestDevice device;
      // The fragments come from the host, one for each matrix.
      std::vector<std::uint32_t> image = rows.place;
      for (std::size_t m = 0; m < 4; ++m) {
        for (std::size_t lane = 0; lane < 32; ++lane) image.push_back(fragment(rows, m, lane, transposed));
      }
      const std::uint64_t in = device.upload(std::vector<std::uint16_t>(256, 0)), out = device.upload(image);
      std::string body = addresses;
      for (int i = 0; i < 4; ++i) {
        body += "ld.global.b32 %r1" + std::to_string(i) + ", [%rd0+" + std::to_string(128 * (i + 1)) + "];\n";
      }
      body += "stmatrix.sync.aligned.m8n8.x" + std::to_string(count) + (transposed ? ".trans" : "") +
              ".shared.b16 [%r1], " + list("%r1", count) +
              ";\nbar.warp.sync 0xffffffff;\nsetp.lt.u32 %p0, %r60, " + std::to_string(8 * count) +
              ";\n@%p0 ld.shared.v4.b32 {%r4, %r5, %r6, %r7}, [%r1];\n@%p0 st.global.v4.b32 [%rd1], {%r4, "
              "%r5, %r6, %r7};\n";
      const LaunchResult result = device.run(kernel_of(body, buffer), {.block = {32, 1, 1}}, {}, in, out);
      ASSERT_EQ(findings_of(result), "") << body;
      const auto stored = device.download<std::uint16_t>(in, static_cast<std::size_t>(64 * count));
      for (std::size_t i = 0; i < stored.size(); ++i) ASSERT_EQ(stored[i], rows.elements[i]) << body << i;
    }
  }
}

TEST(MatrixMove, MovmatrixTransposes) {
  const Rows rows(40);
  std::vector<std::uint32_t> input(32);
  for (std::size_t lane = 0; lane < 32; ++lane) input[lane] = fragment(rows, 0, lane, false);
  TestDevice device;
  const std::uint64_t in = device.upload(input), out = device.room<std::uint32_t>(32);
  const LaunchResult result = device.run(kernel_of(R"(
  mad.wide.u32 %rd0, %r60, 4, %rd60;
  mad.wide.u32 %rd1, %r60, 4, %rd61;
  ld.global.u32 %r0, [%rd0];
  movmatrix.sync.aligned.m8n8.trans.b16 %r0, %r0;
  st.global.u32 [%rd1], %r0;
)"),
                                         {.block = {32, 1, 1}}, {}, in, out);
  EXPECT_EQ(findings_of(result), "");
  const auto moved = device.download<std::uint32_t>(out, 32);
  for (std::size_t lane = 0; lane < 32; ++lane) EXPECT_EQ(moved[lane], fragment(rows, 0, lane, true)) << lane;
}

TEST(MatrixMove, LdmatrixTransposesBytes) {
  for (const std::size_t count : {1u, 2u}) {
    const Rows rows(7);
    TestDevice device({12, 0, 'a'});
    std::vector<std::uint32_t> image = rows.place;
    image.resize(32 * 5);
    const std::uint64_t in = device.upload(rows.elements), out = device.upload(image);
    std::string body = addresses + R"(
  ld.global.v4.b32 {%r4, %r5, %r6, %r7}, [%rd1];
  st.shared.v4.b32 [%r1], {%r4, %r5, %r6, %r7};
  bar.warp.sync 0xffffffff;
)" + "ldmatrix.sync.aligned.m16n16.x" +
                       std::to_string(count) + ".trans.shared.b8 " +
                       list("%r1", static_cast<int>(2 * count)) + ", [%r1];\n";
    for (std::size_t i = 0; i < 2 * count; ++i)
      body += "st.global.b32 [%rd0+" + std::to_string(128 * (i + 1)) + "], %r1" + std::to_string(i) + ";\n";
    const LaunchResult result =
        device.run(kernel_of(body, buffer, "sm_120a"), {.block = {32, 1, 1}}, {}, in, out);
    EXPECT_EQ(findings_of(result), "");
    const auto words = device.download<std::uint32_t>(out, 32 * 5);
    for (std::size_t i = 0; i < 64 * count; ++i) {
      const std::size_t lane = i % 32, half = i / 32 % 2, matrix = i / 64;
      const std::size_t column = lane / 4 + 8 * half, row = 16 * matrix + lane % 4 * 4;
      std::uint32_t expected = 0;
      for (std::size_t j = 0; j < 4; ++j) {
        const std::uint32_t pair = rows.elements[(row + j) * 8 + column / 2];
        expected |= (pair >> 8 * (column % 2) & 255) << 8 * j;
      }
      EXPECT_EQ(words[32 + i], expected) << "register " << i / 32 << " lane " << lane;
    }
  }
}

// The promise of a swizzle: rows of a tile of 128-byte rows without and with it.
TEST(MatrixMove, CountsBankConflicts) {
  TestDevice device;
  const auto wavefronts = [&](const std::string& swizzle) {
    const std::string body = R"(
  mov.u32 %r0, tile;
  and.b32 %r1, %r60, 7;
  shr.u32 %r2, %r60, 3;
)" + swizzle + R"(
  mad.lo.u32 %r3, %r1, 128, %r0;
  mad.lo.u32 %r3, %r2, 16, %r3;
  ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r4, %r5, %r6, %r7}, [%r3];
)";
    const std::string ptx = kernel_of(body, ".shared .align 128 .b8 tile[1024];\n");
    const LaunchResult result =
        device.run(ptx, {.block = {32, 1, 1}}, {.check_races = false}, std::uint64_t{0}, std::uint64_t{0});
    EXPECT_EQ(findings_of(result), "");
    InstructionCounts sum;
    for (const InstructionCounts& counts : result.counts) sum += counts;
    EXPECT_EQ(sum.shared_read_bytes, 512u);
    EXPECT_EQ(sum.ideal_wavefronts, 4u);
    return sum.bank_wavefronts;
  };
  EXPECT_EQ(wavefronts(""), 32u);
  EXPECT_EQ(wavefronts("xor.b32 %r2, %r2, %r1;\n"), 4u);
}

TEST(MatrixMove, BadAccesses) {
  TestDevice device;
  const auto text = [&](const std::string& body, unsigned threads = 32) {
    return findings_of(
        device.run(kernel_of("mov.u32 %r0, buffer;\nmad.lo.u32 %r1, %r60, 16, %r0;\n" + body, buffer),
                   {.block = {threads, 1, 1}}, {}, std::uint64_t{0}, std::uint64_t{0}));
  };
  const std::string x4 = "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r4, %r5, %r6, %r7}, ";
  EXPECT_NE(text(x4 + "[%r1+8];\n").find("misaligned"), std::string::npos);
  EXPECT_NE(text(x4 + "[%r1+16];\n").find("out of bounds"), std::string::npos);
  EXPECT_NE(text(x4 + "[%r1];\n").find("uninitialized read"), std::string::npos);
  EXPECT_NE(text("mov.u64 %rd0, 64;\nldmatrix.sync.aligned.m8n8.x1.b16 {%r4}, [%rd0];\n")
                .find("not in shared memory"),
            std::string::npos);
  EXPECT_NE(text("setp.lt.u32 %p0, %r60, 16;\n@%p0 " + x4 + "[%r1];\n").find("barrier divergence"),
            std::string::npos);
  EXPECT_NE(text(x4 + "[%r1];\n", 16).find("address of a row"), std::string::npos) << "half a warp";
  for (const char* bad : {"ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r4, %r5}, [%r1];\n",
                          "ldmatrix.aligned.m8n8.x1.shared.b16 {%r4}, [%r1];\n",
                          "ldmatrix.sync.aligned.m8n8.x3.shared.b16 {%r4, %r5, %r6}, [%r1];\n",
                          "ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {%r4, %r5}, [%r1];\n",
                          "movmatrix.sync.aligned.m8n8.b16 %r4, %r5;\n",
                          "stmatrix.sync.aligned.m8n8.x1.shared.b8 [%r1], {%r4};\n"}) {
    EXPECT_THROW(text(bad), PtxError) << bad;
  }
}

}  // namespace
}  // namespace jit::emulator::testing
