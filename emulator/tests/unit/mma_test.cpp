// mma.sync: fragments as the PTX ISA draws them, sums as the hardware makes them.
#include <bit>
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

// Selectors of the scales of A and B, {byte-id, thread-id} each, where blocks of both have scales.
struct Selectors {
  std::string a, b;
};

// Loads A, B and C, and a word of scales for A and B where there are `selectors`, executes `instruction` as often as there
// are blocks, each on matrices of its own.
std::string mma_kernel(const std::string& instruction, std::size_t a, std::size_t b, std::size_t c,
                       const std::string& target, const Selectors* selectors = nullptr) {
  const std::size_t loaded = a + b + c + (selectors ? 2 : 0);
  std::string body =
      "mov.u32 %r61, %ctaid.x;\n"
      "mad.lo.u32 %r62, %r61, " +
      std::to_string(loaded * 128) +
      ", 0;\n"
      "mad.lo.u32 %r62, %r60, 4, %r62;\n"
      "cvt.u64.u32 %rd0, %r62;\nadd.u64 %rd0, %rd0, %rd60;\n"
      "mad.lo.u32 %r62, %r61, " +
      std::to_string(c * 128) +
      ", 0;\n"
      "mad.lo.u32 %r62, %r60, 4, %r62;\n"
      "cvt.u64.u32 %rd1, %r62;\nadd.u64 %rd1, %rd1, %rd61;\n";
  for (std::size_t i = 0; i < loaded; ++i) {
    body += "ld.global.b32 %r" + std::to_string(i) + ", [%rd0+" + std::to_string(i * 128) + "];\n";
  }
  const std::string sums = vector_of(static_cast<int>(a + b), c);
  body += instruction + " " + sums + ", " + vector_of(0, a) + ", " + vector_of(static_cast<int>(a), b) +
          ", " + sums;
  if (selectors) {
    body += ", %r" + std::to_string(loaded - 2) + ", {" + selectors->a + "}, %r" +
            std::to_string(loaded - 1) + ", {" + selectors->b + "}";
  }
  body += ";\n";
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

// Products of blocks that have scales: a word of four for each lane and operand.
struct ScaledProblem {
  Problem matrices;
  std::vector<std::uint32_t> a_scales, b_scales;
};

std::vector<Matrix> run_scaled(const std::string& types, const Selectors& selectors,
                               const std::vector<ScaledProblem>& problems) {
  constexpr int k = 32;
  std::vector<std::uint32_t> input;
  const auto append = [&](const std::vector<std::uint32_t>& words) {
    input.insert(input.end(), words.begin(), words.end());
  };
  for (const ScaledProblem& problem : problems) {
    append(fragment(problem.matrices.a, k, 8, [&](int lane, int i) { return place_in_a(8, k, lane, i); }));
    append(fragment(problem.matrices.b, columns, 8, [&](int lane, int i) { return place_in_b(8, lane, i); }));
    append(fragment(problem.matrices.c, columns, 32, place_in_c));
    append(problem.a_scales);
    append(problem.b_scales);
  }
  TestDevice device({12, 0, 'a'});
  const std::uint64_t in = device.upload(input);
  const std::uint64_t out = device.room<std::uint32_t>(problems.size() * 128);
  const LaunchResult result = device.run(
      mma_kernel("mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32." + types +
                     ".f32.ue8m0",
                 4, 2, 4, "sm_120a", &selectors),
      {.grid = {static_cast<unsigned>(problems.size()), 1, 1}, .block = {32, 1, 1}}, {}, in, out);
  for (const Finding& finding : result.findings) ADD_FAILURE() << to_string(finding);
  const auto words = device.download<std::uint32_t>(out, problems.size() * 128);
  std::vector<Matrix> results;
  for (std::size_t p = 0; p < problems.size(); ++p) {
    const auto begin = words.begin() + static_cast<std::ptrdiff_t>(p * 128);
    results.push_back(matrix_of({begin, begin + 128}, 32));
  }
  return results;
}

// x · 2^exponent, of an f32 that stays a normal number.
std::uint32_t times_power_of_two(std::uint32_t x, int exponent) {
  return (x << 1) == 0 ? x : x + (static_cast<std::uint32_t>(exponent) << 23);
}

TEST(ScaledMma, ScalesAddToTheExponentsOfProducts) {
  std::mt19937 random(5);
  const auto scale = [&] { return 117 + static_cast<std::uint32_t>(random() % 21); };
  const auto word = [&] { return scale() | scale() << 8 | scale() << 16 | scale() << 24; };
  for (const NumberFormat& b : {e4m3_numbers, e5m2_numbers}) {
    const FloatCase test{{12, 0, 'a'}, "sm_120a", "m16n8k32", 32, e4m3_numbers, b, {32, 25}};
    std::vector<ScaledProblem> problems(8);
    for (ScaledProblem& problem : problems) {
      problem.matrices = random_problem(test, random, false);
      for (std::uint32_t& c : problem.matrices.c)
        c = std::bit_cast<std::uint32_t>(1.0f + static_cast<float>(random() % 99));
      for (int lane = 0; lane < 32; ++lane) {
        problem.a_scales.push_back(word());
        problem.b_scales.push_back(word());
      }
    }
    const auto results = run_scaled("e4m3." + std::string(to_string(b.type)), {"2, 1", "3, 2"}, problems);
    for (std::size_t p = 0; p < problems.size(); ++p) {
      for (int row = 0; row < rows; ++row) {
        for (int column = 0; column < columns; ++column) {
          const auto a_lane = static_cast<std::size_t>(row % 8 * 4 + 2 + row / 8),
                     b_lane = static_cast<std::size_t>(column * 4 + 2);
          const int exponent = static_cast<int>(problems[p].a_scales[a_lane] >> 16 & 255) +
                               static_cast<int>(problems[p].b_scales[b_lane] >> 24) - 254;
          const Problem& matrices = problems[p].matrices;
          std::vector<std::uint32_t> x, y;
          for (int i = 0; i < 32; ++i) {
            x.push_back(matrices.a[static_cast<std::size_t>(row * 32 + i)]);
            y.push_back(matrices.b[static_cast<std::size_t>(i * columns + column)]);
          }
          const auto at = static_cast<std::size_t>(row * columns + column);
          const std::uint32_t sum =
              reference_sum(test.rule, test.a, test.b, x, y, times_power_of_two(matrices.c[at], -exponent));
          ASSERT_EQ(results[p][at], times_power_of_two(sum, exponent))
              << "row " << row << " column " << column;
        }
      }
    }
  }
}

// One byte of one lane is a scale of 2, in A or in B: selectors say whose row or column doubles, if any.
TEST(ScaledMma, SelectorsPickALaneOfEachQuadAndAByte) {
  constexpr std::uint32_t one = 0x38, unit = 0x7f7f7f7f;  // of e4m3, and of four scales
  std::vector<ScaledProblem> problems;
  for (const bool is_a : {true, false}) {
    for (int place = 0; place < 128; ++place) {
      ScaledProblem problem{{Matrix(rows * 32, one), Matrix(columns * 32, one), Matrix(rows * columns, 0)},
                            std::vector(32, unit),
                            std::vector(32, unit)};
      (is_a ? problem.a_scales : problem.b_scales)[static_cast<std::size_t>(place / 4)] += 1u
                                                                                           << place % 4 * 8;
      problems.push_back(problem);
    }
  }
  for (int byte = 0; byte < 4; ++byte) {
    for (int thread = 0; thread < 4; ++thread) {
      const std::string b_selectors = std::to_string(byte) + ", " + std::to_string(thread),
                        a_selectors = std::to_string(byte) + ", " + std::to_string(thread % 2);
      const auto results = run_scaled("e4m3.e4m3", {a_selectors, b_selectors}, problems);
      for (std::size_t p = 0; p < problems.size(); ++p) {
        const bool is_a = p < 128;
        const int lane = static_cast<int>(p % 128) / 4;
        const bool is_seen =
            static_cast<int>(p) % 4 == byte && (is_a ? lane % 4 / 2 == thread % 2 : lane % 4 == thread);
        const int doubled = is_a ? lane / 4 + 8 * (lane % 2) : lane / 4;
        for (int row = 0; row < rows; ++row) {
          for (int column = 0; column < columns; ++column) {
            const float expected = is_seen && (is_a ? row : column) == doubled ? 64 : 32;
            ASSERT_EQ(std::bit_cast<float>(results[p][static_cast<std::size_t>(row * columns + column)]),
                      expected)
                << "scale " << p << " by {" << b_selectors << "} row " << row << " column " << column;
          }
        }
      }
    }
  }
}

TEST(ScaledMma, AScaleMayBeNoNumber) {
  ScaledProblem problem{{Matrix(rows * 32, 0), Matrix(columns * 32, 0), Matrix(rows * columns, 0)},
                        std::vector<std::uint32_t>(32, 0x7f7f7f7f),
                        std::vector<std::uint32_t>(32, 0x7f7f7f7f)};
  problem.a_scales[4] = 0x7f7f7fff;  // of row 1
  const auto results = run_scaled("e4m3.e4m3", {"0, 0", "0, 0"}, {problem});
  for (int row = 0; row < rows; ++row)
    EXPECT_EQ(results[0][static_cast<std::size_t>(row * columns)], row == 1 ? 0x7fffffffu : 0u) << row;
}

TEST(ScaledMma, RefusesSelectorsThatNoLaneHas) {
  const auto finding_of = [](const Selectors& selectors) {
    TestDevice device({12, 0, 'a'});
    const std::uint64_t in = device.upload(std::vector<std::uint32_t>(12 * 32));
    const std::uint64_t out = device.room<std::uint32_t>(128);
    const LaunchResult result = device.run(
        mma_kernel("mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.f32.e4m3.e4m3.f32.ue8m0", 4,
                   2, 4, "sm_120a", &selectors),
        {.block = {32, 1, 1}}, {}, in, out);
    return result.findings.empty() ? std::string() : result.findings.front().message;
  };
  EXPECT_EQ(finding_of({"3, 1", "3, 3"}), "");
  EXPECT_NE(finding_of({"0, 2", "0, 0"}).find("thread-id-a is 2"), std::string::npos);
  EXPECT_NE(finding_of({"4, 0", "0, 0"}).find("byte-id-a is 4"), std::string::npos);
  EXPECT_NE(finding_of({"0, 0", "0, 4"}).find("thread-id-b is 4"), std::string::npos);
}

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
  const std::string scaled = "mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.f32.e4m3.e4m3.f32";
  const std::string byte_operands = " {%r0,%r1,%r2,%r3}, {%r0,%r1,%r2,%r3}, {%r4,%r5}, {%r0,%r1,%r2,%r3}";
  EXPECT_NE(message(scaled + ".ue8m0" + byte_operands + ", %r0, {0, 0}, %r0, {0, 0};").find("sm_120a"),
            std::string::npos);
}

}  // namespace
}  // namespace jit::emulator
