#include "generator/wgmma_source.h"

#include <algorithm>
#include <regex>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace jit {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::vector<std::string> matches(const std::string& text, const std::string& pattern) {
  const std::regex regex(pattern);
  std::vector<std::string> found;
  for (std::sregex_iterator it(text.begin(), text.end(), regex), end; it != end; ++it)
    found.push_back(it->str(it->size() > 1 ? 1 : 0));
  return found;
}

// The text of the assembly: all string literals of the asm statement before its operands.
std::string assembly_of(const std::string& function) {
  const std::size_t begin = function.find("asm volatile("), end = function.find("\n        : ", begin);
  std::string assembly;
  for (const std::string& literal : matches(function.substr(begin, end - begin), R"re("([^"]*)")re"))
    assembly += literal;
  return assembly;
}

// "%3, %4, …" from `first` on.
std::string list(int first, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += (i == 0 ? "%" : ", %") + std::to_string(first + i);
  return text;
}

std::vector<WgmmaInstruction> all_instructions() {
  std::vector<WgmmaInstruction> all;
  for (const DType dtype : {DType::bf16, DType::fp16}) {
    for (int n = 16; n <= 256; n += 16) {
      for (const bool a_in_registers : {false, true}) {
        for (const bool b_along_rows : {false, true}) {
          all.push_back(
              {.dtype = dtype, .n = n, .a_in_registers = a_in_registers, .b_along_rows = b_along_rows});
        }
      }
    }
  }
  return all;
}

TEST(WgmmaSource, NamesTheInstructionOfShapeAndType) {
  for (const WgmmaInstruction& instruction : all_instructions()) {
    const std::string type = instruction.dtype == DType::bf16 ? "bf16" : "f16";
    EXPECT_THAT(assembly_of(wgmma_function("multiply", "", instruction)),
                HasSubstr("wgmma.mma_async.sync.aligned.m64n" + std::to_string(instruction.n) + "k16.f32." +
                          type + "." + type + " {"));
  }
}

// A thread holds N / 2 accumulators; then come A, B, and what says whether to accumulate.
TEST(WgmmaSource, OperandsAreNumberedInOrder) {
  for (const WgmmaInstruction& instruction : all_instructions()) {
    const int accumulators = instruction.n / 2;
    const std::string transposed = instruction.b_along_rows ? "1" : "0";
    const std::string assembly = assembly_of(wgmma_function("multiply", "", instruction));
    const std::string d = "{" + list(0, accumulators) + "}, ";
    if (instruction.a_in_registers) {
      // scale-d, imm-scale-a, imm-scale-b, imm-trans-b: A in registers has no imm-trans-a.
      EXPECT_THAT(assembly, HasSubstr(" " + d + "{" + list(accumulators, 4) + "}, %" +
                                      std::to_string(accumulators + 4) + ", 1, 1, 1, " + transposed + ";"));
      EXPECT_THAT(assembly, Not(HasSubstr("setp")));
    } else {
      EXPECT_THAT(assembly,
                  HasSubstr(" " + d + list(accumulators, 2) + ", p, 1, 1, 0, " + transposed + ";}"));
      EXPECT_THAT(assembly, HasSubstr("setp.ne.b32 p, %" + std::to_string(accumulators + 2) + ", 0;"));
    }
  }
}

TEST(WgmmaSource, ConstraintsMatchTheOperands) {
  for (const WgmmaInstruction& instruction : all_instructions()) {
    const std::string function = wgmma_function("multiply", "", instruction);
    const std::vector<std::string> accumulators = matches(function, R"re("\+f"\((d\[\d+\]\[\d\])\))re");
    ASSERT_EQ(accumulators.size(), static_cast<std::size_t>(instruction.n / 2));
    for (std::size_t i = 0; i < accumulators.size(); ++i)
      ASSERT_EQ(accumulators[i], "d[" + std::to_string(i / 4) + "][" + std::to_string(i % 4) + "]");
    const std::vector<std::string> inputs = matches(function, R"re("[rl]"\([^"]*\)(?=,|\)))re");
    if (instruction.a_in_registers) {
      EXPECT_THAT(inputs, ::testing::ElementsAre("\"r\"(a[0])", "\"r\"(a[1])", "\"r\"(a[2])", "\"r\"(a[3])",
                                                 "\"l\"(b)"));
    } else {
      EXPECT_THAT(inputs,
                  ::testing::ElementsAre("\"l\"(a)", "\"l\"(b)", "\"r\"(static_cast<int>(accumulate))"));
    }
    const std::vector<std::string> numbers = matches(assembly_of(function), R"(%(\d+))");
    const int most = std::stoi(*std::max_element(
        numbers.begin(), numbers.end(),
        [](const std::string& a, const std::string& b) { return std::stoi(a) < std::stoi(b); }));
    EXPECT_EQ(static_cast<std::size_t>(most) + 1, accumulators.size() + inputs.size());
  }
}

TEST(WgmmaSource, DeclaresTheFunction) {
  const std::string registers =
      wgmma_function("wgmma_pv", "D += A B.", {.dtype = DType::bf16, .n = 64, .a_in_registers = true});
  EXPECT_THAT(registers, HasSubstr("  // D += A B.\n"));
  EXPECT_THAT(registers, HasSubstr("void wgmma_pv(float (&d)[8][4], const unsigned (&a)[4], "
                                   "unsigned long long b) {"));
  const std::string shared = wgmma_function("wgmma_qk", "D = A B.", {.dtype = DType::fp16, .n = 64});
  EXPECT_THAT(shared, HasSubstr("void wgmma_qk(float (&d)[8][4], unsigned long long a, "
                                "unsigned long long b, bool accumulate) {"));
  for (const std::string& text : {registers, shared}) {
    EXPECT_EQ(std::count(text.begin(), text.end(), '{'), std::count(text.begin(), text.end(), '}'));
    EXPECT_EQ(std::count(text.begin(), text.end(), '('), std::count(text.begin(), text.end(), ')'));
    EXPECT_TRUE(text.ends_with("  }\n"));
  }
}

TEST(WgmmaSource, WholeText) {
  EXPECT_EQ(wgmma_function("f", "Doc.", {.dtype = DType::fp16, .n = 16, .b_along_rows = true}),
            R"re(  // Doc.
  static __device__ __forceinline__ void f(float (&d)[2][4], unsigned long long a, unsigned long long b, bool accumulate) {
    asm volatile(
        "{.reg .pred p; setp.ne.b32 p, %10, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7}, "
        "%8, %9, p, 1, 1, 0, 1;}"
        : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][0]), "+f"(d[1][1]), "+f"(d[1][2]), "+f"(d[1][3])
        : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)));
  }
)re");
}

}  // namespace
}  // namespace jit
