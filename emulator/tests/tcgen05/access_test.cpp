// tcgen05.ld, st and cp: which register of which lane is which word.
#include <array>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/ptx_run.h"
#include "tests/unit/async_ptx.h"
#include "tests/unit/wgmma_run.h"

namespace jit::emulator::testing {
namespace {

using Words = std::vector<std::uint32_t>;

const std::string alloc =
    "setp.lt.u32 %p4, %r60, 32;\n@%p4 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [place], 64;\n"
    "bar.sync 0;\nld.shared.b32 %r1, [place];\nand.b32 %r2, %r60, 96;\nshl.b32 %r2, %r2, 16;\n"
    "add.u32 %r1, %r1, %r2;\nmul.wide.u32 %rd1, %r60, 4;\nadd.u64 %rd2, %rd60, %rd1;\nadd.u64 %rd3, %rd61, "
    "%rd1;\n";
const std::string dealloc =
    "tcgen05.fence::before_thread_sync;\nbar.sync 0;\nld.shared.b32 %r1, [place];\n"
    "@%p4 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r1, 64;\n";

// 64 columns of 128 lanes, from `in` or to `out`: column by column.
std::string whole(bool load) {
  std::string text;
  for (int i = 0; i < 64; ++i) {
    const std::string at = "+" + std::to_string(512 * i) + "]", column = "[%r1+" + std::to_string(i) + "]";
    text += load ? "tcgen05.ld.sync.aligned.32x32b.x1.b32 %r5, " + column +
                       ";\ntcgen05.wait::ld.sync.aligned;\nst.global.b32 [%rd3" + at + ", %r5;\n"
                 : "ld.global.b32 %r5, [%rd2" + at + ";\ntcgen05.st.sync.aligned.32x32b.x1.b32 " + column +
                       ", %r5;\n";
  }
  return load ? text : text + "tcgen05.wait::st.sync.aligned;\n";
}

// Word 1000 · lane + column in every place.
Words image() {
  Words words;
  for (std::uint32_t column = 0; column < 64; ++column) {
    for (std::uint32_t lane = 0; lane < 128; ++lane) words.push_back(1000 * lane + column);
  }
  return words;
}

Words run(const std::string& body, const Words& in, std::size_t count,
          const std::string& target = "sm_100a") {
  TestDevice device({10, target == "sm_103a" ? 3 : 0, 'a'});
  const std::uint64_t from = device.upload(in), to = device.upload(Words(count, 0xabcdefu));
  const LaunchResult result =
      device.run(kernel_of(alloc + body + dealloc,
                           ".shared .align 1024 .b8 tile[8192];\n.shared .align 4 .b32 place;\n"
                           ".shared .align 8 .b64 done;\n",
                           target),
                 {.block = {128, 1, 1}}, {}, from, to);
  EXPECT_EQ(findings_of(result), "");
  return device.download<std::uint32_t>(to, count);
}

struct Shape {
  std::string name, address;
  int registers;
  /// The lane of the warp's, and the column, of a register.
  std::array<int, 2> (*place)(int lane, int i);
};
const Shape shapes[] = {
    {"32x32b.x8", "[%r1]", 8,
     [](int lane, int i) {
       return std::array{lane, i};
     }},
    {"32x32b.x64", "[%r1]", 64,
     [](int lane, int i) {
       return std::array{lane, i};
     }},
    {"16x64b.x4", "[%r1]", 4,
     [](int lane, int i) {
       return std::array{lane / 4 + (lane % 2 == 0 ? 0 : 8), 2 * i + (lane % 4 < 2 ? 0 : 1)};
     }},
    {"16x128b.x2", "[%r1+1048576]", 4,
     [](int lane, int i) {
       return std::array{16 + lane / 4 + i % 2 * 8, i / 2 * 4 + lane % 4};
     }},
    // As sums of mma.m16n8 lie in registers.
    {"16x256b.x2", "[%r1]", 8,
     [](int lane, int i) {
       const auto [row, column] = place_in_sums(lane, i);
       return std::array{row, column};
     }},
    {"16x32bx2.x4", "[%r1], 32", 4,
     [](int lane, int i) {
       return std::array{lane % 16, lane / 16 * 32 + i};
     }},
};

TEST(Tcgen05Access, LoadsEveryShape) {
  for (const Shape& shape : shapes) {
    std::string body = whole(false) + ".reg .b32 %v<64>;\ntcgen05.ld.sync.aligned." + shape.name + ".b32 " +
                       registers("%v", 0, shape.registers) + ", " + shape.address +
                       ";\ntcgen05.wait::ld.sync.aligned;\n";
    for (int i = 0; i < shape.registers; ++i) {
      body += "st.global.b32 [%rd3+" + std::to_string(512 * i) + "], %v" + std::to_string(i) + ";\n";
    }
    const Words out = run(body, image(), static_cast<std::size_t>(128 * shape.registers));
    for (int i = 0; i < shape.registers; ++i) {
      for (int thread = 0; thread < 128; ++thread) {
        const auto [lane, column] = shape.place(thread % 32, i);
        ASSERT_EQ(out[static_cast<std::size_t>(128 * i + thread)],
                  static_cast<std::uint32_t>(1000 * (thread / 32 * 32 + lane) + column))
            << shape.name << " register " << i << " thread " << thread;
      }
    }
  }
}

TEST(Tcgen05Access, StoresEveryShape) {
  for (const Shape& shape : shapes) {
    std::string body = whole(false) + ".reg .b32 %v<64>;\n";
    for (int i = 0; i < shape.registers; ++i) {
      body += "add.u32 %v" + std::to_string(i) + ", %r60, " + std::to_string(500000 + 1000 * i) + ";\n";
    }
    body += "tcgen05.st.sync.aligned." + shape.name + ".b32 " + shape.address + ", " +
            registers("%v", 0, shape.registers) + ";\ntcgen05.wait::st.sync.aligned;\n" + whole(true);
    Words expected = image();
    for (int i = 0; i < shape.registers; ++i) {
      for (int thread = 0; thread < 128; ++thread) {
        const auto [lane, column] = shape.place(thread % 32, i);
        expected[static_cast<std::size_t>(128 * column + thread / 32 * 32 + lane)] =
            static_cast<std::uint32_t>(500000 + 1000 * i + thread);
      }
    }
    ASSERT_EQ(run(body, image(), 64 * 128), expected) << shape.name;
  }
}

TEST(Tcgen05Access, PacksHalves) {
  const Words out =
      run(whole(false) +
              "tcgen05.ld.sync.aligned.32x32b.x2.pack::16b.b32 {%r5, %r6}, [%r1+4];\n"
              "tcgen05.wait::ld.sync.aligned;\nst.global.b32 [%rd3], %r5;\n"
              "tcgen05.st.sync.aligned.32x32b.x1.unpack::16b.b32 [%r1+8], {%r6};\n"
              "tcgen05.wait::st.sync.aligned;\ntcgen05.ld.sync.aligned.32x32b.x2.b32 {%r5, %r6}, [%r1+8];\n"
              "tcgen05.wait::ld.sync.aligned;\nst.global.b32 [%rd3+512], %r5;\n"
              "st.global.b32 [%rd3+1024], %r6;\n",
          image(), 384);
  for (std::uint32_t lane = 0; lane < 128; ++lane) {
    const auto low = [&](std::uint32_t column) { return (1000 * lane + column) & 0xffff; };
    EXPECT_EQ(out[lane], low(4) | low(5) << 16);
    EXPECT_EQ(out[128 + lane], low(6));
    EXPECT_EQ(out[256 + lane], low(7));
  }
}

TEST(Tcgen05Access, ReducesWhileLoading) {
  const std::string load =
      "tcgen05.ld.red.sync.aligned.32x32b.x4.max.f32 {%r5, %r6, %r7, %r8}, %r9, [%r1+8];\n"
      "tcgen05.wait::ld.sync.aligned;\nst.global.b32 [%rd3], %r9;\n";
  Words in = image();
  for (std::uint32_t& word : in) word = std::bit_cast<std::uint32_t>(static_cast<float>(word % 97) - 40.0f);
  const Words out = run(whole(false) + load, in, 128, "sm_103a");
  for (std::size_t lane = 0; lane < 128; ++lane) {
    float most = -1000;
    for (std::size_t column = 8; column < 12; ++column)
      most = std::max(most, std::bit_cast<float>(in[128 * column + lane]));
    EXPECT_EQ(std::bit_cast<float>(out[lane]), most);
  }
  EXPECT_THROW(Module(kernel_of(load, "", "sm_100a"), {10, 0, 'a'}), PtxError);
}

TEST(Tcgen05Access, CopiesFromSharedMemory) {
  struct Copy {
    std::string name;
    int rows, words;
    int (*row)(int lane);
  };
  const Copy copies[] = {
      {"128x256b", 128, 8, [](int lane) { return lane; }},
      {"128x128b", 128, 4, [](int lane) { return lane; }},
      {"64x128b.warpx2::02_13", 64, 4, [](int lane) { return lane % 32 + (lane < 64 ? 0 : 32); }},
      {"64x128b.warpx2::01_23", 64, 4, [](int lane) { return lane % 64; }},
      {"32x128b.warpx4", 32, 4, [](int lane) { return lane % 32; }},
  };
  for (const Copy& copy : copies) {
    // Cores of 8 rows of 16 bytes: those of a column side by side.
    const int column = copy.rows / 8 * 128;
    const std::uint64_t descriptor = std::uint64_t{128 / 16} << 32 |
                                     static_cast<std::uint64_t>(column / 16) << 16 | std::uint64_t{1} << 46;
    std::string body =
        whole(false) + "setp.eq.u32 %p5, %r60, 0;\n@%p5 mbarrier.init.shared::cta.b64 [done], 1;\n";
    body +=
        "setp.lt.u32 %p6, %r60, " + std::to_string(copy.rows) +
        ";\nshr.u32 %r6, %r60, 3;\nmul.lo.u32 %r6, %r6, 128;\nand.b32 %r7, %r60, 7;\nshl.b32 %r7, %r7, 4;\n"
        "add.u32 %r6, %r6, %r7;\nmov.u32 %r8, tile;\nadd.u32 %r6, %r6, %r8;\n";
    for (int word = 0; word < copy.words; ++word) {
      body += "add.u32 %r9, %r60, " + std::to_string(900000 + 1000 * word) + ";\n@%p6 st.shared.b32 [%r6+" +
              std::to_string(word / 4 * column + word % 4 * 4) + "], %r9;\n";
    }
    body +=
        "fence.proxy.async;\ntcgen05.fence::before_thread_sync;\nbar.sync 0;\n"
        "tcgen05.fence::after_thread_sync;\nld.shared.b32 %r10, [place];\nmov.u32 %r8, tile;\nshr.u32 %r8, "
        "%r8, 4;\n"
        "cvt.u64.u32 %rd4, %r8;\nor.b64 %rd4, %rd4, " +
        std::to_string(descriptor) + ";\n@%p5 tcgen05.cp.cta_group::1." + copy.name +
        " [%r10+16], %rd4;\n@%p5 tcgen05.commit.cta_group::1.mbarrier::arrive::one.b64 [%rd5];\n" +
        wait_for("done", "0", "wait") + "tcgen05.fence::after_thread_sync;\n" + whole(true);
    const std::string place = "mov.u32 %r11, done;\ncvt.u64.u32 %rd5, %r11;\ncvta.shared.u64 %rd5, %rd5;\n";
    Words expected = image();
    for (int lane = 0; lane < 128; ++lane) {
      for (int word = 0; word < copy.words; ++word) {
        expected[static_cast<std::size_t>(128 * (16 + word) + lane)] =
            static_cast<std::uint32_t>(900000 + 1000 * word + copy.row(lane));
      }
    }
    ASSERT_EQ(run(place + body, image(), 64 * 128), expected) << copy.name;
  }
}

}  // namespace
}  // namespace jit::emulator::testing
