// Products by tcgen05.mma in a test: operands laid out in shared memory and tensor memory, the kernel, and what must
// come out. One block of 128 threads; thread t stores and loads lane t of tensor memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/ptx_run.h"
#include "tests/support/tensor_reference.h"
#include "tests/unit/async_ptx.h"
#include "tests/unit/wgmma_run.h"

namespace jit::emulator::testing {

struct Tcgen05Problem {
  int m = 128, n = 16;
  int steps = 1;
  NumberFormat a_format = bf16_numbers, b_format = bf16_numbers;
  bool to_f16 = false;
  bool a_in_tensor_memory = false;
  bool accumulate = true;
  bool negate_a = false, negate_b = false;
  int scale = 0;
  bool a_along_k = true, b_along_k = true;
  int a_swizzle = 128, b_swizzle = 128;
  int d_lane = 0;              ///< of M 64: 0 or 16
  bool is_stationary = false;  ///< .ws
  std::uint64_t zeros = 0;     ///< and its zero-column mask

  /// Elements of 4 and 6 bits lie in bytes.
  static int bytes_of(const NumberFormat& format) { return format.bits < 8 ? 1 : format.bits / 8; }
  int step_k() const { return 32 / bytes_of(a_format); }
  int k() const { return steps * step_k(); }
  TileLayout a_layout() const { return {a_along_k, a_swizzle, bytes_of(a_format), m, k()}; }
  TileLayout b_layout() const { return {b_along_k, b_swizzle, bytes_of(b_format), n, k()}; }
  int b_begin() const { return (a_layout().bytes() + 1023) / 1024 * 1024; }
  int smem_bytes() const { return (b_begin() + b_layout().bytes() + 511) / 512 * 512; }
  int a_words() const { return a_in_tensor_memory ? 8 * steps : 0; }  ///< of a row
  /// Columns of D, then of A.
  int columns() const { return n + a_words() <= 32 ? 32 : n + a_words() <= 256 ? 256 : 512; }
  std::string kind() const { return a_format.bits <= 8 ? "f8f6f4" : a_format.bits == 32 ? "tf32" : "f16"; }
  std::uint32_t instruction() const {
    const auto code = [](const NumberFormat& format) {
      return format.type == Type::bf16 || format.type == Type::e5m2 ? 1u
             : format.type == Type::tf32                            ? 2u
             : format.type == Type::e2m3                            ? 3u
             : format.type == Type::e3m2                            ? 4u
             : format.type == Type::e2m1                            ? 5u
                                                                    : 0u;
    };
    return (to_f16 ? 0u : 1u << 4) | code(a_format) << 7 | code(b_format) << 10 |
           std::uint32_t{negate_a} << 13 | std::uint32_t{negate_b} << 14 | std::uint32_t{!a_along_k} << 15 |
           std::uint32_t{!b_along_k} << 16 | static_cast<std::uint32_t>(n / 8) << 17 |
           static_cast<std::uint32_t>(m / 16) << 24;
  }
  /// The lane of tensor memory that holds a row of A, and of a column of D.
  int lane(int row, int at = 0) const {
    if (is_stationary) return row + at / d_columns() * m;
    return m == 64 ? row / 16 * 32 + d_lane + row % 16 : row;
  }
  int d_columns() const { return is_stationary ? n * m / 128 : n; }
  /// The column of tensor memory that holds one of D.
  int column(int at) const { return at % d_columns(); }
};

/// As tcgen05 has it: the swizzle in bits 61 to 63, and 1 in bits 46 to 48.
inline std::uint64_t tcgen05_descriptor(const TileLayout& layout) {
  const std::map<int, std::uint64_t> modes = {{0, 0}, {128, 2}, {64, 4}, {32, 6}};
  return (layout.descriptor() & 0x3fff'ffff'ffff'ffff) | modes.at(layout.swizzle) << 61 |
         std::uint64_t{1} << 46;
}

/// Moves between tensor memory from column `first` on and words of `memory` (%rd2: of the thread, 512 bytes apart).
inline std::string tensor_rows(bool load, int first, int count) {
  std::string text;
  for (int i = 0; i < count; i += 8) {
    const std::string regs = registers("%t", 0, 8);
    if (load) {
      text += "tcgen05.ld.sync.aligned.32x32b.x8.b32 " + regs + ", [%r11+" + std::to_string(first + i) +
              "];\ntcgen05.wait::ld.sync.aligned;\n";
    }
    for (int j = 0; j < 8; ++j) {
      const std::string place = "[%rd2+" + std::to_string(512 * (i + j)) + "]",
                        reg = "%t" + std::to_string(j);
      text += load ? "st.global.b32 " + place + ", " + reg + ";\n"
                   : "ld.global.b32 " + reg + ", " + place + ";\n";
    }
    if (!load) {
      text +=
          "tcgen05.st.sync.aligned.32x32b.x8.b32 [%r11+" + std::to_string(first + i) + "], " + regs + ";\n";
    }
  }
  return text;
}

inline std::string product_text(const Tcgen05Problem& problem, int step) {
  const std::string number = std::to_string(step);
  std::string text = "add.s64 %rd52, %rd50, " + std::to_string(step * problem.a_layout().step() / 16) +
                     ";\nadd.s64 %rd53, %rd51, " + std::to_string(step * problem.b_layout().step() / 16) +
                     ";\n";
  text += "@%p5 tcgen05.mma" + std::string(problem.is_stationary ? ".ws" : "") +
          ".cta_group::1.kind::" + problem.kind() + " [%r12], " +
          (problem.a_in_tensor_memory ? "[%r12+" + std::to_string(problem.n + 8 * step) + "]" : "%rd52") +
          ", %rd53, %r13, " + (step == 0 ? "%p9" : "1") +
          (problem.scale != 0 && step == 0 ? ", " + std::to_string(problem.scale) : "") +
          (problem.zeros != 0 ? ", %rd54" : "") + ";\n";
  return text;
}

inline const std::string before = "tcgen05.fence::before_thread_sync;\n",
                         after = "tcgen05.fence::after_thread_sync;\n";
inline const std::string commit_line =
    "@%p5 tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r14];\n";
inline const std::string alloc_line = "@%p4 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r15], ";
inline const std::string relinquish_line =
    "@%p4 tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;\n";
inline const std::string dealloc_line = "@%p4 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r16, ";
inline const std::string stores_over = "tcgen05.wait::st.sync.aligned;\n";

/// `in`: the image of shared memory, then D's words and A's of tensor memory, 128 of each column. `out`: D's.
inline std::string tcgen05_kernel(const Tcgen05Problem& problem, const std::string& target = "sm_100a") {
  const std::string columns = std::to_string(problem.columns());
  std::string body =
      ".reg .b32 %t<8>;\n"
      "mov.u32 %r1, tile;\nmul.lo.u32 %r2, %r60, 4;\ncvt.u64.u32 %rd1, %r2;\nadd.s64 %rd2, %rd60, %rd1;\n"
      "add.u32 %r3, %r1, %r2;\nadd.u32 %r4, %r1, " +
      std::to_string(problem.smem_bytes()) +
      ";\n"
      "fill:\nld.global.b32 %r5, [%rd2];\nst.shared.b32 [%r3], %r5;\nadd.s64 %rd2, %rd2, 512;\n"
      "add.u32 %r3, %r3, 512;\nsetp.lt.u32 %p1, %r3, %r4;\n@%p1 bra fill;\n"
      "mov.u32 %r14, done;\nmov.u32 %r15, place;\nsetp.lt.u32 %p4, %r60, 32;\nsetp.eq.u32 %p5, %r60, 0;\n"
      "@%p5 mbarrier.init.shared::cta.b64 [%r14], 1;\n" +
      alloc_line + columns + ";\n" + relinquish_line +
      "fence.proxy.async;\n"
      "bar.sync 0;\n"
      "ld.shared.b32 %r16, [%r15];\n"
      "and.b32 %r10, %r60, 96;\nshl.b32 %r10, %r10, 16;\nadd.u32 %r11, %r16, %r10;\n"  // own lanes
      "add.u32 %r12, %r16, " +
      std::to_string(problem.d_lane << 16) + ";\nmov.u32 %r13, " + std::to_string(problem.instruction()) +
      ";\n" + "shr.u32 %r6, %r1, 4;\ncvt.u64.u32 %rd4, %r6;\nor.b64 %rd50, %rd4, " +
      std::to_string(tcgen05_descriptor(problem.a_layout())) + ";\nadd.s64 %rd4, %rd4, " +
      std::to_string(problem.b_begin() / 16) + ";\nor.b64 %rd51, %rd4, " +
      std::to_string(tcgen05_descriptor(problem.b_layout())) + ";\nmov.b64 %rd54, " +
      std::to_string(problem.zeros) + ";\nsetp.ne.u32 %p9, " + std::to_string(problem.accumulate ? 1 : 0) +
      ", 0;\n";
  if (problem.accumulate || problem.a_in_tensor_memory) {
    body +=
        tensor_rows(false, 0, problem.n + problem.a_words()) + stores_over + before + "bar.sync 1;\n" + after;
  }
  for (int step = 0; step < problem.steps; ++step) body += product_text(problem, step);
  body += commit_line + wait_for("%r14", "0", "wait") + after + "add.s64 %rd2, %rd61, %rd1;\n" +
          tensor_rows(true, 0, problem.d_columns()) + before + "bar.sync 2;\n" + after + dealloc_line +
          columns + ";\n";
  return kernel_of(body,
                   ".shared .align 1024 .b8 tile[" + std::to_string(problem.smem_bytes()) +
                       "];\n.shared .align 8 .b64 done;\n.shared .align 4 .b32 place;\n",
                   target);
}

/// Elements of A, B and D by row and column.
struct Tcgen05Data {
  std::vector<std::uint32_t> a, b, c;

  Tcgen05Data(const Tcgen05Problem& problem, unsigned seed, bool wild = false) {
    std::mt19937 random(seed);
    const auto fill = [&](std::vector<std::uint32_t>& to, int count, const NumberFormat& format) {
      to.resize(static_cast<std::size_t>(count));
      for (std::uint32_t& x : to) x = random_element(format, random, wild);
    };
    fill(a, problem.m * problem.k(), problem.a_format);
    fill(b, problem.n * problem.k(), problem.b_format);
    fill(c, problem.m * problem.n, problem.to_f16 ? f16_numbers : f32_numbers);
  }
};

inline std::vector<std::uint32_t> tcgen05_input(const Tcgen05Problem& problem, const Tcgen05Data& data) {
  std::vector<std::uint32_t> words(static_cast<std::size_t>(problem.smem_bytes() / 4), 0);
  const auto put = [&](int begin, const TileLayout& layout, const NumberFormat& format,
                       const std::vector<std::uint32_t>& elements) {
    for (int line = 0; line < layout.lines; ++line) {
      for (int i = 0; i < layout.k; ++i) {
        const int at = begin + layout.offset(line, i);
        // 16 elements of 4 or 6 bits lie side by side at the beginning of 16 bytes.
        const int bit = format.bits < 8 ? at / 16 * 128 + at % 16 * format.bits : at * 8;
        const std::uint64_t bits = std::uint64_t{elements[static_cast<std::size_t>(line * layout.k + i)]}
                                   << bit % 32;
        words[static_cast<std::size_t>(bit / 32)] |= static_cast<std::uint32_t>(bits);
        if (bits >> 32 != 0)
          words[static_cast<std::size_t>(bit / 32 + 1)] |= static_cast<std::uint32_t>(bits >> 32);
      }
    }
  };
  if (!problem.a_in_tensor_memory) put(0, problem.a_layout(), problem.a_format, data.a);
  put(problem.b_begin(), problem.b_layout(), problem.b_format, data.b);
  const std::size_t begin = words.size();
  words.resize(begin + static_cast<std::size_t>(128 * (problem.n + problem.a_words())), 0);
  const auto at = [&](int row, int column) -> std::uint32_t& {
    return words[begin + static_cast<std::size_t>(128 * column + problem.lane(row))];
  };
  const int bits = 8 * Tcgen05Problem::bytes_of(problem.a_format), in_word = 32 / bits;
  const int shift = problem.a_format.type == Type::e2m1 ? 2 : 0;  // in the middle of its byte
  for (int row = 0; row < problem.m; ++row) {
    for (int column = 0; column < problem.n; ++column) {
      words[begin + static_cast<std::size_t>(128 * problem.column(column) + problem.lane(row, column))] =
          data.c[static_cast<std::size_t>(row * problem.n + column)];
    }
    for (int i = 0; problem.a_in_tensor_memory && i < problem.k(); ++i) {
      at(row, problem.n + i / in_word) |= data.a[static_cast<std::size_t>(row * problem.k() + i)]
                                          << (i % in_word * bits + shift);
    }
  }
  return words;
}

inline std::uint32_t tcgen05_reference(const Tcgen05Problem& problem, const Tcgen05Data& data, int row,
                                       int column) {
  const SumRule rule{.group = problem.step_k(), .fraction_bits = 25, .to_f16 = problem.to_f16};
  std::uint32_t sum = problem.accumulate ? data.c[static_cast<std::size_t>(row * problem.n + column)] : 0;
  if (problem.scale != 0) {
    sum = std::bit_cast<std::uint32_t>(std::ldexp(std::bit_cast<float>(sum), -problem.scale));
  }
  for (int step = 0; step < problem.steps; ++step) {
    std::vector<std::uint32_t> x, y;
    for (int i = step * problem.step_k(); i < (step + 1) * problem.step_k(); ++i) {
      std::uint32_t left = data.a[static_cast<std::size_t>(row * problem.k() + i)];
      if (problem.negate_a != problem.negate_b) left ^= 1u << (problem.a_format.bits - 1);
      x.push_back(left);
      y.push_back(data.b[static_cast<std::size_t>(column * problem.k() + i)]);
    }
    sum = reference_sum(rule, problem.a_format, problem.b_format, x, y, sum);
  }
  return sum;
}

struct Tcgen05Run {
  LaunchResult result;
  std::vector<std::uint32_t> words;  ///< of D, 128 of each column

  Tcgen05Run(const Tcgen05Problem& problem, const Tcgen05Data& data, const std::string& ptx,
             const LaunchOptions& options = {}, TargetArch arch = {10, 0, 'a'}) {
    TestDevice device(arch);
    const std::uint64_t in = device.upload(tcgen05_input(problem, data));
    const auto count = static_cast<std::size_t>(problem.n) * 128;
    const std::uint64_t out = device.upload(std::vector<std::uint32_t>(count, 0));
    result = device.run(ptx, {.block = {128, 1, 1}}, options, in, out);
    words = device.download<std::uint32_t>(out, count);
  }
  Tcgen05Run(const Tcgen05Problem& problem, const Tcgen05Data& data)
      : Tcgen05Run(problem, data, tcgen05_kernel(problem)) {}
};

inline void expect_reference(const Tcgen05Problem& problem, const Tcgen05Data& data, const Tcgen05Run& run) {
  ASSERT_EQ(findings_of(run.result), "");
  for (int row = 0; row < problem.m; ++row) {
    for (int column = 0; column < problem.n; ++column) {
      const std::uint32_t word =
          run.words[static_cast<std::size_t>(128 * problem.column(column) + problem.lane(row, column))];
      ASSERT_EQ(problem.to_f16 ? word & 0xffff : word, tcgen05_reference(problem, data, row, column))
          << "row " << row << " column " << column;
    }
  }
}

}  // namespace jit::emulator::testing
