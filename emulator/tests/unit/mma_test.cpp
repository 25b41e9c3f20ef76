// mma.sync: fragments as the PTX ISA draws them, sums as the hardware makes them.
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "ptx/syntax.h"
#include "tests/support/ptx_run.h"
#include "tests/support/tensor_reference.h"

namespace jit::emulator {
namespace {

using namespace testing;

constexpr int rows = 16, columns = 8;

struct Place {
  int row, column;
};

// "Matrix Fragments for mma.m16n8k…", one formula for each width of elements. `i` counts the elements of a
// thread.
Place place_in_a(int bits, int k, int lane, int i) {
  const int group = lane / 4, thread = lane % 4;
  if (bits == 32) return {group + 8 * (i % 2), thread + 4 * (i / 2)};
  if (bits == 16) return {group + (i % 4 < 2 ? 0 : 8), thread * 2 + i % 2 + (i < 4 ? 0 : 8)};
  if (k == 16) return {group + (i < 4 ? 0 : 8), thread * 4 + i % 4};
  return {group + (i < 4 || (i >= 8 && i < 12) ? 0 : 8), thread * 4 + i % 4 + (i < 8 ? 0 : 16)};
}
Place place_in_b(int bits, int lane, int i) {
  const int group = lane / 4, thread = lane % 4;
  if (bits == 32) return {thread + 4 * i, group};
  if (bits == 16) return {thread * 2 + i % 2 + (i < 2 ? 0 : 8), group};
  return {thread * 4 + i % 4 + (i < 4 ? 0 : 16), group};
}
Place place_in_c(int lane, int i) { return {lane / 4 + (i < 2 ? 0 : 8), lane % 4 * 2 + i % 2}; }

using Matrix = std::vector<std::uint32_t>;  // elements, row by row

// Registers of 32 lanes each, one behind the other.
std::vector<std::uint32_t> fragment(const Matrix& matrix, int width, int bits, auto place) {
  const int per_lane = static_cast<int>(matrix.size()) / 32, per_word = 32 / bits;
  std::vector<std::uint32_t> words(static_cast<std::size_t>(per_lane / per_word) * 32, 0);
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < per_lane; ++i) {
      const Place at = place(lane, i);
      words[static_cast<std::size_t>(i / per_word * 32 + lane)] |=
          matrix[static_cast<std::size_t>(at.row * width + at.column)] << (i % per_word * bits);
    }
  }
  return words;
}
Matrix matrix_of(const std::vector<std::uint32_t>& words, int bits) {
  Matrix matrix(rows * columns);
  const int per_word = 32 / bits;
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 4; ++i) {
      const Place at = place_in_c(lane, i);
      const std::uint32_t word = words[static_cast<std::size_t>(i / per_word * 32 + lane)];
      matrix[static_cast<std::size_t>(at.row * columns + at.column)] =
          bits == 32 ? word : word >> (i % per_word * bits) & 0xffff;
    }
  }
  return matrix;
}

std::string vector_of(int first, std::size_t count) {
  std::string text = "{";
  for (std::size_t i = 0; i < count; ++i) {
    text += (i == 0 ? "%r" : ", %r") + std::to_string(first + static_cast<int>(i));
  }
  return text + "}";
}

// Loads A, B and C, executes `instruction` as often as there are blocks, each on matrices of its own.
std::string mma_kernel(const std::string& instruction, std::size_t a, std::size_t b, std::size_t c,
                       const std::string& target) {
  std::string body =
      "mov.u32 %r61, %ctaid.x;\n"
      "mad.lo.u32 %r62, %r61, " +
      std::to_string((a + b + c) * 128) +
      ", 0;\n"
      "mad.lo.u32 %r62, %r60, 4, %r62;\n"
      "cvt.u64.u32 %rd0, %r62;\nadd.u64 %rd0, %rd0, %rd60;\n"
      "mad.lo.u32 %r62, %r61, " +
      std::to_string(c * 128) +
      ", 0;\n"
      "mad.lo.u32 %r62, %r60, 4, %r62;\n"
      "cvt.u64.u32 %rd1, %r62;\nadd.u64 %rd1, %rd1, %rd61;\n";
  for (std::size_t i = 0; i < a + b + c; ++i) {
    body += "ld.global.b32 %r" + std::to_string(i) + ", [%rd0+" + std::to_string(i * 128) + "];\n";
  }
  const std::string sums = vector_of(static_cast<int>(a + b), c);
  body += instruction + " " + sums + ", " + vector_of(0, a) + ", " + vector_of(static_cast<int>(a), b) +
          ", " + sums + ";\n";
  for (std::size_t i = 0; i < c; ++i) {
    body += "st.global.b32 [%rd1+" + std::to_string(i * 128) + "], %r" + std::to_string(a + b + i) + ";\n";
  }
  return kernel_of(body, "", target);
}

struct Problem {
  Matrix a, b, c;
};

// Runs all problems in one launch. `bits` of elements and of accumulators.
std::vector<Matrix> run(TargetArch arch, const std::string& target, const std::string& instruction, int k,
                        int bits, int sum_bits, const std::vector<Problem>& problems) {
  std::vector<std::uint32_t> input;
  std::size_t a_words = 0, b_words = 0, c_words = 0;
  for (const Problem& problem : problems) {
    const auto a =
        fragment(problem.a, k, bits, [&](int lane, int i) { return place_in_a(bits, k, lane, i); });
    const auto b =
        fragment(problem.b, columns, bits, [&](int lane, int i) { return place_in_b(bits, lane, i); });
    const auto c = fragment(problem.c, columns, sum_bits, place_in_c);
    a_words = a.size() / 32;
    b_words = b.size() / 32;
    c_words = c.size() / 32;
    for (const auto* part : {&a, &b, &c}) input.insert(input.end(), part->begin(), part->end());
  }
  TestDevice device(arch);
  const std::uint64_t in = device.upload(input);
  const std::uint64_t out = device.room<std::uint32_t>(problems.size() * c_words * 32);
  const LaunchShape shape{.grid = {static_cast<unsigned>(problems.size()), 1, 1}, .block = {32, 1, 1}};
  const LaunchResult result =
      device.run(mma_kernel(instruction, a_words, b_words, c_words, target), shape, {}, in, out);
  for (const Finding& finding : result.findings) ADD_FAILURE() << to_string(finding);
  std::uint64_t flops = 0;
  for (const InstructionCounts& count : result.counts) flops += count.tensor_flops;
  EXPECT_EQ(flops, problems.size() * 2 * rows * columns * static_cast<std::size_t>(k));
  const auto words = device.download<std::uint32_t>(out, problems.size() * c_words * 32);
  std::vector<Matrix> results;
  for (std::size_t p = 0; p < problems.size(); ++p) {
    const auto begin = words.begin() + static_cast<std::ptrdiff_t>(p * c_words * 32);
    results.push_back(matrix_of({begin, begin + static_cast<std::ptrdiff_t>(c_words * 32)}, sum_bits));
  }
  return results;
}

struct FloatCase {
  TargetArch arch;
  std::string target, shape;
  int k;
  NumberFormat a, b;
  SumRule rule;
};

const std::vector<FloatCase>& float_cases() {
  constexpr TargetArch ampere{8, 0, 0}, ada{8, 9, 0}, hopper{9, 0, 'a'}, blackwell{12, 0, 'a'};
  static const std::vector<FloatCase> cases = {
      {ampere, "sm_80", "m16n8k8", 8, f16_numbers, f16_numbers, {8, 24}},
      {ampere, "sm_80", "m16n8k16", 16, f16_numbers, f16_numbers, {8, 24}},
      {ampere, "sm_80", "m16n8k16", 16, f16_numbers, f16_numbers, {8, 24, true}},
      {ampere, "sm_80", "m16n8k16", 16, bf16_numbers, bf16_numbers, {8, 24}},
      {ampere, "sm_80", "m16n8k4", 4, tf32_numbers, tf32_numbers, {4, 24}},
      {ampere, "sm_80", "m16n8k8", 8, tf32_numbers, tf32_numbers, {4, 24}},
      {ada, "sm_89", "m16n8k32", 32, e4m3_numbers, e4m3_numbers, {16, 13, false, 13}},
      {ada, "sm_89", "m16n8k16", 16, e5m2_numbers, e4m3_numbers, {16, 13, false, 13}},
      {ada, "sm_89", "m16n8k32", 32, e5m2_numbers, e5m2_numbers, {16, 13, true}},
      {hopper, "sm_90a", "m16n8k8", 8, f16_numbers, f16_numbers, {8, 25, true}},
      {hopper, "sm_90a", "m16n8k8", 8, bf16_numbers, bf16_numbers, {8, 25}},
      {hopper, "sm_90a", "m16n8k16", 16, f16_numbers, f16_numbers, {16, 25}},
      {hopper, "sm_90a", "m16n8k16", 16, f16_numbers, f16_numbers, {16, 25, true}},
      {hopper, "sm_90a", "m16n8k16", 16, bf16_numbers, bf16_numbers, {16, 25}},
      {hopper, "sm_90a", "m16n8k8", 8, tf32_numbers, tf32_numbers, {8, 25}},
      {hopper, "sm_90a", "m16n8k32", 32, e4m3_numbers, e5m2_numbers, {16, 25, false, 23, true}},
      {hopper, "sm_90a", "m16n8k32", 32, e4m3_numbers, e4m3_numbers, {16, 25, true, 23, true}},
      {hopper, "sm_90a", "m16n8k16", 16, e4m3_numbers, e4m3_numbers, {8, 25, false, 23, true}},
      {blackwell, "sm_120a", "m16n8k32", 32, e4m3_numbers, e5m2_numbers, {32, 25}},
      {blackwell, "sm_120a", "m16n8k32", 32, e5m2_numbers, e5m2_numbers, {32, 25, true}},
  };
  return cases;
}

std::string instruction_of(const FloatCase& test, bool with_kind) {
  const std::string sums = test.rule.to_f16 ? ".f16" : ".f32";
  return "mma.sync.aligned." + test.shape + ".row.col" + (with_kind ? ".kind::f8f6f4" : "") + sums + "." +
         std::string(to_string(test.a.type)) + "." + std::string(to_string(test.b.type)) + sums;
}

Problem random_problem(const FloatCase& test, std::mt19937& random, bool wild) {
  Problem problem;
  const NumberFormat& sums = test.rule.to_f16 ? f16_numbers : f32_numbers;
  problem.a.resize(static_cast<std::size_t>(rows * test.k));
  problem.b.resize(static_cast<std::size_t>(columns * test.k));
  problem.c.resize(rows * columns);
  for (std::uint32_t& x : problem.a) x = random_element(test.a, random, wild);
  for (std::uint32_t& x : problem.b) x = random_element(test.b, random, wild);
  for (std::uint32_t& x : problem.c) x = random_element(sums, random, wild);
  return problem;
}

void expect_reference(const FloatCase& test, const Problem& problem, const Matrix& result,
                      const std::string& what) {
  for (int row = 0; row < rows; ++row) {
    for (int column = 0; column < columns; ++column) {
      std::vector<std::uint32_t> x, y;
      for (int i = 0; i < test.k; ++i) {
        x.push_back(problem.a[static_cast<std::size_t>(row * test.k + i)]);
        y.push_back(problem.b[static_cast<std::size_t>(i * columns + column)]);
      }
      const auto at = static_cast<std::size_t>(row * columns + column);
      ASSERT_EQ(result[at], reference_sum(test.rule, test.a, test.b, x, y, problem.c[at]))
          << what << " row " << row << " column " << column;
    }
  }
}

class FloatMma : public ::testing::TestWithParam<std::size_t> {};

TEST_P(FloatMma, EqualsTheReferenceBitForBit) {
  const FloatCase& test = float_cases()[GetParam()];
  std::mt19937 random(static_cast<unsigned>(GetParam()));
  std::vector<Problem> problems;
  for (int i = 0; i < 12; ++i) problems.push_back(random_problem(test, random, i % 3 == 2));
  for (const bool with_kind : {false, true}) {
    if (with_kind && test.arch.major < 12) continue;
    const std::string instruction = instruction_of(test, with_kind);
    const auto results =
        run(test.arch, test.target, instruction, test.k, test.a.bits, test.rule.to_f16 ? 16 : 32, problems);
    for (std::size_t p = 0; p < problems.size(); ++p) {
      expect_reference(test, problems[p], results[p], test.target + " " + instruction);
    }
  }
}
INSTANTIATE_TEST_SUITE_P(AllShapes, FloatMma, ::testing::Range<std::size_t>(0, float_cases().size()));

class IntegerMma : public ::testing::TestWithParam<int> {};

TEST_P(IntegerMma, WrapsOrSaturates) {
  const int k = GetParam();
  std::mt19937 random(3);
  for (const bool a_signed : {false, true}) {
    for (const bool b_signed : {false, true}) {
      for (const bool saturates : {false, true}) {
        std::vector<Problem> problems(4);
        for (Problem& problem : problems) {
          problem.a.resize(static_cast<std::size_t>(rows * k));
          problem.b.resize(static_cast<std::size_t>(columns * k));
          problem.c.resize(rows * columns);
          for (std::uint32_t& x : problem.a) x = random() & 0xff;
          for (std::uint32_t& x : problem.b) x = random() & 0xff;
          for (std::uint32_t& x : problem.c) {
            const auto near = static_cast<std::uint32_t>(random() % 512) - 256;
            x = random() % 2 == 0 ? static_cast<std::uint32_t>(random()) : 0x80000000u + near;
          }
        }
        const auto name = [](bool is_signed) { return is_signed ? ".s8" : ".u8"; };
        const auto value = [](std::uint32_t x, bool is_signed) -> std::int64_t {
          return is_signed ? static_cast<std::int8_t>(x) : static_cast<std::int64_t>(x);
        };
        const std::string instruction = "mma.sync.aligned.m16n8k" + std::to_string(k) + ".row.col" +
                                        (saturates ? ".satfinite" : "") + ".s32" + name(a_signed) +
                                        name(b_signed) + ".s32";
        const auto results = run({8, 0, 0}, "sm_80", instruction, k, 8, 32, problems);
        for (std::size_t p = 0; p < problems.size(); ++p) {
          const Problem& problem = problems[p];
          for (int row = 0; row < rows; ++row) {
            for (int column = 0; column < columns; ++column) {
              const auto at = static_cast<std::size_t>(row * columns + column);
              std::int64_t sum = static_cast<std::int32_t>(problem.c[at]);
              for (int i = 0; i < k; ++i) {
                sum += value(problem.a[static_cast<std::size_t>(row * k + i)], a_signed) *
                       value(problem.b[static_cast<std::size_t>(i * columns + column)], b_signed);
              }
              if (saturates) {
                sum = std::clamp<std::int64_t>(sum, std::numeric_limits<std::int32_t>::min(),
                                               std::numeric_limits<std::int32_t>::max());
              }
              ASSERT_EQ(results[p][at], static_cast<std::uint32_t>(sum)) << instruction;
            }
          }
        }
      }
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Sizes, IntegerMma, ::testing::Values(16, 32));

TEST(Mma, WantsAllThreadsOfTheWarp) {
  TestDevice device;
  const std::string product =
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%r0,%r1,%r2,%r3}, {%r0,%r1,%r2,%r3}, {%r4,%r5}, "
      "{%r0,%r1,%r2,%r3};\n";
  std::string body;
  for (int i = 0; i < 6; ++i) body += "mov.u32 %r" + std::to_string(i) + ", 0;\n";
  const auto run_with = [&](unsigned threads) {
    return device.run(kernel_of(body + product), {.block = {threads, 1, 1}}, {}, std::uint64_t{0},
                      std::uint64_t{0});
  };
  EXPECT_TRUE(run_with(64).findings.empty());
  const LaunchResult result = run_with(48);
  ASSERT_EQ(result.findings.size(), 1u);
  EXPECT_EQ(result.findings[0].kind, FindingKind::illegal_instruction);
  EXPECT_EQ(result.findings[0].warp, 1);
}

TEST(Mma, RefusesWhatItDoesNotKnow) {
  const auto message = [](const std::string& instruction, const std::string& target = "sm_90a") {
    TestDevice device;
    try {
      device.run(kernel_of(instruction, "", target), {.block = {32, 1, 1}}, {}, std::uint64_t{0},
                 std::uint64_t{0});
    } catch (const ptx::PtxError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  const std::string operands = " {%r0,%r1,%r2,%r3}, {%r0,%r1,%r2,%r3}, {%r4,%r5}, {%r0,%r1,%r2,%r3};";
  EXPECT_NE(message("mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32" + operands).find("m16n8k16"),
            std::string::npos);
  EXPECT_NE(message("mma.sync.aligned.m16n8k16.row.col.f16.bf16.bf16.f16" + operands).find("not for bf16"),
            std::string::npos);
  EXPECT_NE(
      message("mma.sync.aligned.m16n8k16.row.col.f32.f16.bf16.f32" + operands).find("the emulator knows"),
      std::string::npos);
  EXPECT_NE(message("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f16" + operands).find("one type"),
            std::string::npos);
  EXPECT_NE(
      message("mma.sync.aligned.m16n8k16.row.col.satfinite.f32.f16.f16.f32" + operands).find("integers"),
      std::string::npos);
  EXPECT_NE(message("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32" + operands, "sm_80").find("sm_89"),
            std::string::npos);
  EXPECT_NE(message("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32" + operands).find("vector of 2"),
            std::string::npos);
  EXPECT_NE(message("mma.sync.aligned.m16n8k99999999999.row.col.f32.f16.f16.f32" + operands).find("shape"),
            std::string::npos);
  EXPECT_EQ(message("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32" + operands), "accepted");
}

}  // namespace
}  // namespace jit::emulator
