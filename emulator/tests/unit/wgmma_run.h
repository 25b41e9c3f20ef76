// Products by wgmma in a test: operands laid out in shared memory as the PTX ISA draws them, the kernel, and
// what must come out.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/ptx_run.h"
#include "tests/support/tensor_reference.h"

namespace jit::emulator::testing {

/// How an operand lies in shared memory ("Shared Memory Matrix Layout"): `along_k`, or transposed.
struct TileLayout {
  bool along_k = true;
  int swizzle = 128;  ///< bytes; 0: none
  int element_bytes = 2;
  int lines = 0;  ///< rows of A or columns of B
  int k = 0;      ///< of the whole tile, all steps

  int span() const { return swizzle == 0 ? 16 : swizzle; }
  /// Byte offset of an element. Along k a tile is at most one panel wide, unless it has no swizzle.
  int offset(int line, int i) const {
    const int byte = (along_k ? i : line) * element_bytes, across = along_k ? line : i;
    const int row = across % 8, chunk = byte / 16;
    if (swizzle == 0) {
      return along_k ? across / 8 * 128 + chunk * core_column() + row * 16 + byte % 16
                     : across / 8 * 128 + chunk * core_row() + row * 16 + byte % 16;
    }
    const int mixed = (chunk % (span() / 16)) ^ (row * span() / 128);
    return byte / span() * panel() + across / 8 * 8 * span() + row * span() + mixed * 16 + byte % 16;
  }
  int bytes() const {
    const int along = (along_k ? k : lines) * element_bytes;
    return (along + span() - 1) / span() * panel();
  }
  /// The descriptor, without the start address.
  std::uint64_t descriptor() const {
    const std::map<int, std::uint64_t> modes = {{0, 0}, {128, 1}, {64, 2}, {32, 3}};
    int leading = 16, stride = 8 * span();
    if (swizzle == 0 && along_k) {
      leading = core_column();
      stride = 128;
    } else if (swizzle == 0) {
      leading = 128;
      stride = core_row();
    } else if (!along_k) {
      leading = panel();
    }
    return modes.at(swizzle) << 62 | static_cast<std::uint64_t>(stride / 16) << 32 |
           static_cast<std::uint64_t>(leading / 16) << 16;
  }
  /// Bytes from one step along k to the next.
  int step() const {
    if (along_k) return swizzle == 0 ? 2 * core_column() : 32;
    const int step_lines = 32 / element_bytes;
    return step_lines * (swizzle == 0 ? 16 : span());
  }

 private:
  int core_column() const { return lines / 8 * 128; }           // all cores of one column of 16 bytes
  int core_row() const { return k / 8 * 128; }                  // all cores of one row of 8 elements
  int panel() const { return (along_k ? lines : k) * span(); }  // one row of the pattern wide
};

struct WgmmaProblem {
  int n = 8;
  int steps = 1;
  NumberFormat a_format = bf16_numbers, b_format = bf16_numbers;
  bool to_f16 = false;
  bool a_in_registers = false;
  bool accumulate = true;
  int scale_a = 1, scale_b = 1;
  bool a_along_k = true, b_along_k = true;
  int a_swizzle = 128, b_swizzle = 128;

  int step_k() const { return 256 / a_format.bits; }
  int k() const { return steps * step_k(); }
  TileLayout a_layout() const { return {a_along_k, a_swizzle, a_format.bits / 8, 64, k()}; }
  TileLayout b_layout() const { return {b_along_k, b_swizzle, b_format.bits / 8, n, k()}; }
  /// A tile begins on a multiple of 1024.
  int b_begin() const { return (a_layout().bytes() + 1023) / 1024 * 1024; }
  int smem_bytes() const { return b_begin() + b_layout().bytes(); }
  int sum_registers() const { return n / (to_f16 ? 4 : 2); }
  std::string type() const {
    return "m64n" + std::to_string(n) + "k" + std::to_string(step_k()) + (to_f16 ? ".f16." : ".f32.") +
           std::string(to_string(a_format.type)) + "." + std::string(to_string(b_format.type));
  }
};

inline std::string registers(const std::string& prefix, int first, int count) {
  std::string text = "{";
  for (int i = 0; i < count; ++i) text += (i == 0 ? prefix : ", " + prefix) + std::to_string(first + i);
  return text + "}";
}

/// The instruction of one step. Descriptors are in %rd50 (A) and %rd51 (B), A's registers in %a….
inline std::string product_text(const WgmmaProblem& problem, int step) {
  const std::string number = std::to_string(step);
  std::string text;
  if (!problem.a_in_registers) {
    text += "add.s64 %rd52, %rd50, " + std::to_string(step * problem.a_layout().step() / 16) + ";\n";
  }
  text += "add.s64 %rd53, %rd51, " + std::to_string(step * problem.b_layout().step() / 16) + ";\n";
  text += "wgmma.mma_async.sync.aligned." + problem.type() + " " +
          registers("%d", 0, problem.sum_registers()) + ", " +
          (problem.a_in_registers ? registers("%a", 4 * step, 4) : "%rd52") + ", %rd53, " +
          (step == 0 ? "%p9" : "1") + ", " + std::to_string(problem.scale_a) + ", " +
          std::to_string(problem.scale_b);
  if (problem.a_format.bits == 16) {
    if (!problem.a_in_registers) text += problem.a_along_k ? ", 0" : ", 1";
    text += problem.b_along_k ? ", 0" : ", 1";
  }
  return text + ";\n";
}

/// Loads shared memory, A's registers and D, multiplies, stores D. `in`: the image of shared memory, then
/// registers of 128 threads each. Lines that tests leave out or replace stand alone.
inline std::string wgmma_kernel(const WgmmaProblem& problem) {
  const int a_registers = problem.a_in_registers ? 4 * problem.steps : 0;
  const int sums = problem.sum_registers();
  std::string body =
      ".reg .b32 %d<" + std::to_string(sums) + ">;\n.reg .b32 %a<" + std::to_string(a_registers + 1) + ">;\n";
  body +=
      "mov.u32 %r1, tile;\n"
      "mul.lo.u32 %r2, %r60, 4;\n"
      "cvt.u64.u32 %rd1, %r2;\n"
      "add.s64 %rd2, %rd60, %rd1;\n"
      "add.s64 %rd3, %rd61, %rd1;\n"
      "add.u32 %r3, %r1, %r2;\n"
      "add.u32 %r4, %r1, " +
      std::to_string(problem.smem_bytes()) +
      ";\n"
      "fill:\n"
      "ld.global.b32 %r5, [%rd2];\n"
      "st.shared.b32 [%r3], %r5;\n"
      "add.s64 %rd2, %rd2, 512;\n"
      "add.u32 %r3, %r3, 512;\n"
      "setp.lt.u32 %p1, %r3, %r4;\n"
      "@%p1 bra fill;\n"
      "add.s64 %rd2, %rd60, %rd1;\n"
      "add.s64 %rd2, %rd2, " +
      std::to_string(problem.smem_bytes()) + ";\n";
  for (int i = 0; i < a_registers; ++i) {
    body += "ld.global.b32 %a" + std::to_string(i) + ", [%rd2+" + std::to_string(512 * i) + "];\n";
  }
  for (int i = 0; i < sums; ++i) {
    body += "ld.global.b32 %d" + std::to_string(i) + ", [%rd2+" + std::to_string(512 * (a_registers + i)) +
            "];\n";
  }
  body +=
      "fence.proxy.async;\n"
      "bar.sync 0;\n"
      "shr.u32 %r6, %r1, 4;\n"
      "cvt.u64.u32 %rd4, %r6;\n"
      "or.b64 %rd50, %rd4, " +
      std::to_string(problem.a_layout().descriptor()) +
      ";\n"
      "add.s64 %rd4, %rd4, " +
      std::to_string(problem.b_begin() / 16) +
      ";\n"
      "or.b64 %rd51, %rd4, " +
      std::to_string(problem.b_layout().descriptor()) +
      ";\n"
      "setp.ne.u32 %p9, " +
      std::to_string(problem.accumulate ? 1 : 0) +
      ", 0;\n"
      "wgmma.fence.sync.aligned;\n";
  for (int step = 0; step < problem.steps; ++step) body += product_text(problem, step);
  body +=
      "wgmma.commit_group.sync.aligned;\n"
      "wgmma.wait_group.sync.aligned 0;\n";
  for (int i = 0; i < sums; ++i) {
    body += "st.global.b32 [%rd3+" + std::to_string(512 * i) + "], %d" + std::to_string(i) + ";\n";
  }
  return kernel_of(body, ".shared .align 1024 .b8 tile[" + std::to_string(problem.smem_bytes()) + "];");
}

/// Elements of A and B by row and column, and of D, in the formats of the problem.
struct WgmmaData {
  std::vector<std::uint32_t> a, b, c;

  WgmmaData(const WgmmaProblem& problem, unsigned seed, bool wild = false) {
    std::mt19937 random(seed);
    const auto fill = [&](std::vector<std::uint32_t>& to, int count, const NumberFormat& format) {
      to.resize(static_cast<std::size_t>(count));
      for (std::uint32_t& x : to) x = random_element(format, random, wild);
    };
    fill(a, 64 * problem.k(), problem.a_format);
    fill(b, problem.n * problem.k(), problem.b_format);
    fill(c, 64 * problem.n, problem.to_f16 ? f16_numbers : f32_numbers);
  }
};

/// Where a thread of the warpgroup keeps elements of D: row and column of element `i` ("Register Fragments").
inline std::array<int, 2> place_in_sums(int thread, int i) {
  const int warp = thread / 32, lane = thread % 32;
  return {16 * warp + lane / 4 + 8 * (i / 2 % 2), 8 * (i / 4) + lane % 4 * 2 + i % 2};
}

inline std::vector<std::uint32_t> wgmma_input(const WgmmaProblem& problem, const WgmmaData& data) {
  std::vector<std::uint32_t> words(static_cast<std::size_t>(problem.smem_bytes() / 4), 0);
  const auto put = [&](int begin, const TileLayout& layout, const std::vector<std::uint32_t>& elements) {
    for (int line = 0; line < layout.lines; ++line) {
      for (int i = 0; i < layout.k; ++i) {
        const int at = begin + layout.offset(line, i);
        words[static_cast<std::size_t>(at / 4)] |= elements[static_cast<std::size_t>(line * layout.k + i)]
                                                   << (at % 4 * 8);
      }
    }
  };
  put(0, problem.a_layout(), data.a);
  put(problem.b_begin(), problem.b_layout(), data.b);
  if (problem.a_in_registers) {
    const int bits = problem.a_format.bits, per_word = 32 / bits;
    for (int index = 0; index < 4 * problem.steps; ++index) {
      const int r = index % 4, step = index / 4;
      for (int thread = 0; thread < 128; ++thread) {
        const int lane = thread % 32, row = 16 * (thread / 32) + lane / 4 + 8 * (r % 2);
        std::uint32_t word = 0;
        for (int i = 0; i < per_word; ++i) {
          const int column = step * problem.step_k() + (lane % 4 + 4 * (r / 2)) * per_word + i;
          word |= data.a[static_cast<std::size_t>(row * problem.k() + column)] << (i * bits);
        }
        words.push_back(word);
      }
    }
  }
  const int per_word = problem.to_f16 ? 2 : 1;
  for (int index = 0; index < problem.sum_registers(); ++index) {
    for (int thread = 0; thread < 128; ++thread) {
      std::uint32_t word = 0;
      for (int i = 0; i < per_word; ++i) {
        const auto [row, column] = place_in_sums(thread, index * per_word + i);
        word |= data.c[static_cast<std::size_t>(row * problem.n + column)] << (16 * i);
      }
      words.push_back(word);
    }
  }
  return words;
}

/// Bits of one element of the result.
inline std::uint32_t wgmma_reference(const WgmmaProblem& problem, const WgmmaData& data, int row,
                                     int column) {
  const bool bytes = problem.a_format.bits == 8;
  const SumRule rule{.group = problem.step_k(),
                     .fraction_bits = bytes ? 13 : 25,
                     .to_f16 = problem.to_f16,
                     .kept_fraction = bytes ? 13 : 23};
  std::uint32_t sum = problem.accumulate ? data.c[static_cast<std::size_t>(row * problem.n + column)] : 0;
  for (int step = 0; step < problem.steps; ++step) {
    std::vector<std::uint32_t> x, y;
    for (int i = step * problem.step_k(); i < (step + 1) * problem.step_k(); ++i) {
      std::uint32_t left = data.a[static_cast<std::size_t>(row * problem.k() + i)];
      if (problem.scale_a * problem.scale_b < 0) left ^= 1u << (problem.a_format.bits - 1);
      x.push_back(left);
      y.push_back(data.b[static_cast<std::size_t>(column * problem.k() + i)]);
    }
    sum = reference_sum(rule, problem.a_format, problem.b_format, x, y, sum);
  }
  return sum;
}

/// Runs `ptx`, by default the problem's kernel, with a block of 128 threads.
struct WgmmaRun {
  LaunchResult result;
  std::vector<std::uint32_t> words;  ///< of D, register by register

  WgmmaRun(const WgmmaProblem& problem, const WgmmaData& data, const std::string& ptx,
           const LaunchOptions& options = {}, unsigned threads = 128) {
    TestDevice device;
    const std::uint64_t in = device.upload(wgmma_input(problem, data));
    const auto count = static_cast<std::size_t>(problem.sum_registers()) * 128;
    const std::uint64_t out = device.upload(std::vector<std::uint32_t>(count, 0));
    result = device.run(ptx, {.block = {threads, 1, 1}}, options, in, out);
    words = device.download<std::uint32_t>(out, count);
  }
  WgmmaRun(const WgmmaProblem& problem, const WgmmaData& data)
      : WgmmaRun(problem, data, wgmma_kernel(problem)) {}

  bool found(FindingKind kind) const {
    for (const Finding& finding : result.findings) {
      if (finding.kind == kind) return true;
    }
    return false;
  }
  std::string findings() const {
    std::string text;
    for (const Finding& finding : result.findings) text += to_string(finding) + "\n";
    return text;
  }
};

inline void expect_reference(const WgmmaProblem& problem, const WgmmaData& data, const WgmmaRun& run) {
  ASSERT_EQ(run.findings(), "");
  const int per_word = problem.to_f16 ? 2 : 1;
  for (int thread = 0; thread < 128; ++thread) {
    for (int i = 0; i < problem.n / 2; ++i) {
      const auto [row, column] = place_in_sums(thread, i);
      const std::uint32_t word = run.words[static_cast<std::size_t>(i / per_word * 128 + thread)];
      const std::uint32_t sum = problem.to_f16 ? word >> (i % 2 * 16) & 0xffff : word;
      ASSERT_EQ(sum, wgmma_reference(problem, data, row, column)) << "row " << row << " column " << column;
    }
  }
}

}  // namespace jit::emulator::testing
