// Products of integers, and of blocks that have scales in tensor memory. Numbers are small, so that sums are exact.
#include <bit>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/tcgen05/tcgen05_run.h"

namespace jit::emulator::testing {
namespace {

constexpr int n = 64, columns = n + 6;

struct KindProblem {
  std::string kind;         ///< with modifiers
  int bits = 8;             ///< of an element
  int scales = 0;           ///< of a row
  bool is_power = true;     ///< ue8m0
  std::uint32_t types = 0;  ///< of A and B, in the instruction descriptor
  int scale_id = 0;
  int k() const { return 256 / bits; }
  std::uint32_t instruction() const {
    const std::uint32_t size = static_cast<std::uint32_t>(n / 8) << 17;
    if (scales == 0) return 2u << 4 | types | size | 8u << 24;
    return types | size | 1u << 27 | std::uint32_t{is_power} << 23 |
           static_cast<std::uint32_t>(scale_id) << 4 | static_cast<std::uint32_t>(scale_id) << 29;
  }
};

double value_of(const KindProblem& problem, std::uint32_t code, bool of_a) {
  if (problem.bits == 4) {
    constexpr double magnitudes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    return (code & 8) != 0 ? -magnitudes[code & 7] : magnitudes[code & 7];
  }
  if (problem.scales != 0) return e4m3_numbers.value(code);
  const bool is_signed = (problem.types >> (of_a ? 7 : 10) & 1) != 0;
  return is_signed ? static_cast<std::int8_t>(code) : static_cast<double>(code);
}

double scale_of(const KindProblem& problem, std::uint32_t code) {
  return problem.is_power ? std::ldexp(1.0, static_cast<int>(code) - 127) : e4m3_numbers.value(code);
}

// `in`: rows of A of 32 bytes, of B, then words of scales: 4 columns of A's, 2 of B's, for each thread. Everything lies
// as cores of 8 rows of 16 bytes, without swizzle.
std::string kernel(const KindProblem& problem) {
  const auto descriptor = [](int rows) {
    return std::to_string(std::uint64_t{128 / 16} << 32 | static_cast<std::uint64_t>(rows * 16 / 16) << 16 |
                          std::uint64_t{1} << 46);
  };
  std::string body =
      "mov.u32 %r1, tile;\nmul.wide.u32 %rd1, %r60, 4;\nadd.s64 %rd2, %rd60, %rd1;\nshl.b32 %r2, %r60, 2;\n"
      "add.u32 %r3, %r1, %r2;\n";
  for (int i = 0; i < (128 + n) * 32 / 512; ++i) {
    const std::string at = std::to_string(512 * i) + "]";
    body += "ld.global.b32 %r5, [%rd2+" + at + ";\nst.shared.b32 [%r3+" + at + ", %r5;\n";
  }
  body +=
      "mov.u32 %r14, done;\nsetp.lt.u32 %p4, %r60, 32;\nsetp.eq.u32 %p5, %r60, 0;\n"
      "@%p5 mbarrier.init.shared::cta.b64 [%r14], 1;\n"
      "@%p4 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [place], 128;\n"
      "fence.proxy.async;\nbar.sync 0;\nld.shared.b32 %r16, [place];\n"
      "and.b32 %r10, %r60, 96;\nshl.b32 %r10, %r10, 16;\nadd.u32 %r11, %r16, %r10;\n";
  for (int i = 0; i < columns - n; ++i) {
    body += "ld.global.b32 %r5, [%rd2+" + std::to_string((128 + n) * 32 + 512 * i) +
            "];\ntcgen05.st.sync.aligned.32x32b.x1.b32 [%r11+" + std::to_string(n + i) + "], %r5;\n";
  }
  body += "tcgen05.wait::st.sync.aligned;\n" + before + "bar.sync 0;\n" + after +
          "shr.u32 %r6, %r1, 4;\ncvt.u64.u32 %rd4, %r6;\nor.b64 %rd50, %rd4, " + descriptor(128) +
          ";\nadd.s64 %rd4, %rd4, 256;\nor.b64 %rd51, %rd4, " + descriptor(n) + ";\nmov.u32 %r13, " +
          std::to_string(problem.instruction()) + ";\n";
  for (const char* const adds : {"0", "1"}) {
    body += "@%p5 tcgen05.mma.cta_group::1." + problem.kind + " [%r16], %rd50, %rd51, %r13, " +
            (problem.scales != 0 ? "[%r16+" + std::to_string(n) + "], [%r16+" + std::to_string(n + 4) + "], "
                                 : "") +
            adds + ";\n";
  }
  body += commit_line + wait_for("%r14", "0", "wait") + after + "add.s64 %rd3, %rd61, %rd1;\n";
  for (int i = 0; i < n; ++i) {
    body += "tcgen05.ld.sync.aligned.32x32b.x1.b32 %r5, [%r11+" + std::to_string(i) +
            "];\ntcgen05.wait::ld.sync.aligned;\nst.global.b32 [%rd3+" + std::to_string(512 * i) +
            "], %r5;\n";
  }
  body += before + "bar.sync 0;\n@%p4 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r16, 128;\n";
  return kernel_of(
      body,
      ".shared .align 1024 .b8 tile[8192];\n.shared .align 8 .b64 done;\n.shared .align 4 .b32 place;\n",
      "sm_100a");
}

std::string findings(const KindProblem& problem, const std::string& ptx, bool check) {
  std::mt19937 random(3);
  const int k = problem.k();
  std::vector<std::uint32_t> a(static_cast<std::size_t>(128 * k)), b(static_cast<std::size_t>(n * k));
  for (auto* const list : {&a, &b}) {
    for (std::uint32_t& x : *list) {
      x = random() & ((1u << problem.bits) - 1);
      if (problem.scales != 0 && problem.bits == 8) x = (x & 0x80) | (0x30 + x % 24);
    }
  }
  std::vector<std::uint32_t> words(static_cast<std::size_t>((128 + n) * 8 + 128 * (columns - n)), 0);
  const auto put = [&](int begin, int rows, const std::vector<std::uint32_t>& from) {
    for (int row = 0; row < rows; ++row) {
      for (int i = 0; i < k; ++i) {
        const int bit = i * problem.bits, piece = bit / 128;
        const int byte = begin + piece * rows * 16 + row / 8 * 128 + row % 8 * 16 + bit % 128 / 8;
        words[static_cast<std::size_t>(byte / 4)] |= from[static_cast<std::size_t>(row * k + i)]
                                                     << (byte % 4 * 8 + bit % 8);
      }
    }
  };
  put(0, 128, a);
  put(128 * 32, n, b);
  // Scales of a row: a word.
  std::vector<std::uint32_t> row_scales(128 + n);
  for (std::uint32_t& word : row_scales) {
    word = 0;
    for (int i = 0; i < 4; ++i)
      word |= (problem.is_power ? 125 + random() % 5 : 0x30 + random() % 16) << 8 * i;
  }
  for (int thread = 0; thread < 128; ++thread) {
    for (int i = 0; i < columns - n; ++i) {
      words[static_cast<std::size_t>((128 + n) * 8 + 128 * i + thread)] =
          row_scales[static_cast<std::size_t>(32 * i + thread % 32)];
    }
  }
  TestDevice device({10, 0, 'a'});
  const std::uint64_t in = device.upload(words), out = device.upload(std::vector<std::uint32_t>(128 * n, 0));
  const LaunchResult result = device.run(ptx, {.block = {128, 1, 1}}, {}, in, out);
  if (!check || !result.findings.empty()) return findings_of(result);
  const auto got = device.download<std::uint32_t>(out, 128 * n);
  for (int row = 0; row < 128; ++row) {
    for (int column = 0; column < n; ++column) {
      double sum = 0;
      for (int i = 0; i < k; ++i) {
        double product = value_of(problem, a[static_cast<std::size_t>(row * k + i)], true) *
                         value_of(problem, b[static_cast<std::size_t>(column * k + i)], false);
        if (problem.scales != 0) {
          const int byte = problem.scale_id + i / (k / problem.scales);
          product *= scale_of(problem, row_scales[static_cast<std::size_t>(row)] >> 8 * byte & 255) *
                     scale_of(problem, row_scales[static_cast<std::size_t>(128 + column)] >> 8 * byte & 255);
        }
        sum += product;
      }
      const std::uint32_t word = got[static_cast<std::size_t>(128 * column + row)];
      const double value = problem.scales == 0 ? static_cast<double>(static_cast<std::int32_t>(word))
                                               : static_cast<double>(std::bit_cast<float>(word));
      // Twice: the second product adds to the first one.
      EXPECT_EQ(value, 2 * sum) << problem.kind << " row " << row << " column " << column;
      if (value != 2 * sum) return "wrong";
    }
  }
  return "";
}

TEST(Tcgen05Kinds, MultiplyExactly) {
  const std::vector<KindProblem> problems = {
      {.kind = "kind::i8", .types = 1u << 7 | 1u << 10},
      {.kind = "kind::i8", .types = 1u << 7},
      {.kind = "kind::mxf8f6f4.block_scale", .scales = 1},
      {.kind = "kind::mxf8f6f4.block_scale.scale_vec::1X", .scales = 1, .scale_id = 3},
      {.kind = "kind::mxf4.block_scale.block32",
       .bits = 4,
       .scales = 2,
       .types = 1u << 7 | 1u << 10,
       .scale_id = 2},
      {.kind = "kind::mxf4nvf4.block_scale.scale_vec::4X",
       .bits = 4,
       .scales = 4,
       .is_power = false,
       .types = 1u << 7 | 1u << 10},
      {.kind = "kind::mxf4nvf4.block_scale.scale_vec::2X",
       .bits = 4,
       .scales = 2,
       .types = 1u << 7 | 1u << 10},
  };
  for (const KindProblem& problem : problems)
    EXPECT_EQ(findings(problem, kernel(problem), true), "") << problem.kind;
}

TEST(Tcgen05Kinds, ScalesThatAreNone) {
  KindProblem problem{.kind = "kind::mxf4nvf4.block_scale.scale_vec::4X",
                      .bits = 4,
                      .scales = 4,
                      .is_power = false,
                      .types = 1u << 7 | 1u << 10,
                      .scale_id = 1};
  EXPECT_NE(findings(problem, kernel(problem), false).find("at a multiple of 4"), std::string::npos);
  problem.scale_id = 0;
  problem.is_power = true;
  EXPECT_NE(findings(problem, kernel(problem), false).find("are ue4m3"), std::string::npos);
  problem.is_power = false;
  // One of the four quarters of the lanes has none.
  std::string ptx = kernel(problem);
  const std::string store = "tcgen05.st.sync.aligned.32x32b.x1.b32 [%r11+" + std::to_string(n) + "], %r5;\n";
  ptx.replace(ptx.find(store), store.size(), "setp.lt.u32 %p8, %r60, 96;\n@%p8 " + store);
  EXPECT_NE(findings(problem, ptx, false).find("never written"), std::string::npos);
}

TEST(Tcgen05Kinds, AreOfSomeTargets) {
  const KindProblem problem{.kind = "kind::i8", .types = 1u << 7 | 1u << 10};
  std::string ptx = kernel(problem);
  ptx.replace(ptx.find("sm_100a"), 7, "sm_103a");
  EXPECT_THROW(Module(ptx, {10, 3, 'a'}), PtxError);
}

}  // namespace
}  // namespace jit::emulator::testing
