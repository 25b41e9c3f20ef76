#include "generator/program/wgmma_source.h"

#include <algorithm>
#include <regex>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/seed.h"

namespace jit {
namespace {

using ::testing::HasSubstr;

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

std::vector<WgmmaProduct> all_products() {
  std::vector<WgmmaProduct> all;
  for (const DType dtype : {DType::bf16, DType::fp16}) {
    for (int n = 16; n <= 256; n += 16) {
      for (const int steps : {1, 3, 16}) {
        for (const bool accumulate : {false, true}) {
          for (const bool a_in_registers : {false, true}) {
            for (const bool b_along_rows : {false, true}) {
              all.push_back({.dtype = dtype,
                             .n = n,
                             .steps = steps,
                             .accumulate = accumulate,
                             .a_in_registers = a_in_registers,
                             .b_along_rows = b_along_rows});
            }
          }
        }
      }
    }
  }
  return all;
}

int count_of(const std::string& text, const std::string& part) {
  int count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(WgmmaSource, NamesTheInstructionOfShapeAndTypeOncePerStep) {
  for (const WgmmaProduct& product : all_products()) {
    const std::string type = product.dtype == DType::bf16 ? "bf16" : "f16";
    const std::string assembly = assembly_of(wgmma_function("multiply", "", product));
    EXPECT_EQ(count_of(assembly, "wgmma.mma_async.sync.aligned.m64n" + std::to_string(product.n) +
                                     "k16.f32." + type + "." + type + " {" + list(0, product.n / 2) + "}, "),
              product.steps);
  }
}

// scale-d, imm-scale-a, imm-scale-b, imm-trans-a (for A in shared memory alone), imm-trans-b.
TEST(WgmmaSource, EveryStepHasItsOperandsAndFlags) {
  for (const WgmmaProduct& product : all_products()) {
    const std::string assembly = assembly_of(wgmma_function("multiply", "", product));
    for (int step = 0; step < product.steps; ++step) {
      const std::string a =
          product.a_in_registers ? "{" + list(product.n / 2 + step * 4, 4) + "}" : std::string("A");
      const std::string flags = std::string(", 1, 1, ") + (product.a_in_registers ? "" : "0, ") +
                                (product.b_along_rows ? "1;" : "0;");
      const bool adds = step > 0 || product.accumulate;
      const int alike = product.a_in_registers || !adds ? 1 : product.steps - (product.accumulate ? 0 : 1);
      EXPECT_EQ(count_of(assembly, "}, " + a + ", B, " + (adds ? "yes" : "no") + flags), alike);
    }
    if (!product.accumulate && product.steps > 1) {
      EXPECT_LT(assembly.find("B, no,"), assembly.find("B, yes,"));
    }
  }
}

// 8-bit products: 32 elements a step, types of A and B of their own, no flags of transposed operands, and D
// in parts of columns that begin with a row of B.
TEST(WgmmaSource, ElementsOf8Bits) {
  const WgmmaProduct product{.dtype = DType::fp8_e5m2,
                             .n = 64,
                             .steps = 2,
                             .accumulate = true,
                             .a_in_registers = true,
                             .columns_at_once = 32,
                             .a_dtype = DType::fp8_e4m3};
  const std::string function = wgmma_function("multiply", "", product);
  const std::string assembly = assembly_of(function);
  for (const int first : {0, 16}) {
    for (const int step : {0, 1}) {
      EXPECT_EQ(count_of(assembly, "m64n32k32.f32.e4m3.e5m2 {" + list(first, 16) + "}, {" +
                                       list(32 + step * 4, 4) + "}, B, yes, 1, 1;"),
                1);
    }
  }
  EXPECT_EQ(count_of(function, "B::column_step(0, 32)"), 1);
  EXPECT_EQ(count_of(function, "B::column_step(1, 32)"), 1);
}

TEST(WgmmaSource, ConstraintsMatchTheOperands) {
  for (const WgmmaProduct& product : reference::some_of(all_products(), 5)) {
    const std::string function = wgmma_function("multiply", "", product);
    const std::vector<std::string> accumulators = matches(function, R"re("\+f"\((d\[\d+\]\[\d\])\))re");
    ASSERT_EQ(accumulators.size(), static_cast<std::size_t>(product.n / 2));
    for (std::size_t i = 0; i < accumulators.size(); ++i)
      ASSERT_EQ(accumulators[i], "d[" + std::to_string(i / 4) + "][" + std::to_string(i % 4) + "]");
    const std::vector<std::string> inputs = matches(function, R"re("[rn]"\()re");
    const std::vector<std::string> numbers = matches(assembly_of(function), R"(%(\d+))");
    const int most = std::stoi(*std::max_element(
        numbers.begin(), numbers.end(),
        [](const std::string& a, const std::string& b) { return std::stoi(a) < std::stoi(b); }));
    EXPECT_EQ(static_cast<std::size_t>(most) + 1, accumulators.size() + inputs.size());
  }
}

// Columns 0 … 127, then the others, of the same registers of A.
TEST(WgmmaSource, ManyColumnsCanBeOfSeveralInstructions) {
  const std::string function = wgmma_function("multiply", "",
                                              {.dtype = DType::bf16,
                                               .n = 144,
                                               .steps = 2,
                                               .accumulate = true,
                                               .a_in_registers = true,
                                               .b_along_rows = true,
                                               .columns_at_once = 128});
  const std::string assembly = assembly_of(function);
  const std::string name = "wgmma.mma_async.sync.aligned.m64n";
  EXPECT_EQ(count_of(assembly, name), 4);
  for (const std::string& a : {list(72, 4), list(76, 4)}) {
    EXPECT_EQ(count_of(assembly, name + "128k16.f32.bf16.bf16 {" + list(0, 64) + "}, {" + a + "}, B, yes"),
              1);
    EXPECT_EQ(count_of(assembly, name + "16k16.f32.bf16.bf16 {" + list(64, 8) + "}, {" + a + "}, B, yes"), 1);
  }
  for (const char* advance : {"B::row_step(1)", "B::row_step(0, 128)", "B::row_step(1, 128)"})
    EXPECT_EQ(count_of(function, advance), 1) << advance;
}

TEST(WgmmaSource, DeclaresTheFunction) {
  const std::string registers =
      wgmma_function("wgmma_pv", "D += A B.",
                     {.dtype = DType::bf16, .n = 64, .steps = 2, .accumulate = true, .a_in_registers = true});
  EXPECT_THAT(registers, HasSubstr("  // D += A B.\n  template <class B, int steps>\n"));
  EXPECT_THAT(registers,
              HasSubstr("void wgmma_pv(float (&d)[8][4], const unsigned (&a)[steps][4], unsigned b) {"));
  const std::string shared = wgmma_function("wgmma_qk", "D = A B.", {.dtype = DType::fp16, .n = 64});
  EXPECT_THAT(shared, HasSubstr("  template <class A, class B>\n"));
  EXPECT_THAT(shared, HasSubstr("void wgmma_qk(float (&d)[8][4], unsigned a, unsigned b) {"));
  for (const std::string& text : {registers, shared}) {
    EXPECT_EQ(std::count(text.begin(), text.end(), '{'), std::count(text.begin(), text.end(), '}'));
    EXPECT_EQ(std::count(text.begin(), text.end(), '('), std::count(text.begin(), text.end(), ')'));
    EXPECT_TRUE(text.ends_with("  }\n"));
  }
}

TEST(WgmmaSource, WholeText) {
  EXPECT_EQ(wgmma_function("f", "Doc.", {.dtype = DType::fp16, .n = 16, .steps = 2, .b_along_rows = true}),
            R"re(  // Doc.
  template <class A, class B>
  static __device__ __forceinline__ void f(float (&d)[2][4], unsigned a, unsigned b) {
    asm volatile(
        "{.reg .pred no, yes; .reg .b32 word; .reg .b64 A, B;\n"
        "setp.ne.b32 no, 0, 0; setp.eq.b32 yes, 0, 0;\n"
        "mov.b64 A, {%8, %9}; mov.b64 B, {%10, %11}; \n"
        "wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7}, "
        "A, B, no, 1, 1, 0, 1;\n"
        "add.u32 word, %8, %12; mov.b64 A, {word, %9}; add.u32 word, %10, %13; mov.b64 B, {word, %11}; \n"
        "wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7}, "
        "A, B, yes, 1, 1, 0, 1;\n"
        "}"
        : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][0]), "+f"(d[1][1]), "+f"(d[1][2]), "+f"(d[1][3])
        : "r"(a), "n"(A::upper_word()), "r"(b), "n"(B::upper_word()), "n"(A::column_step(1)), "n"(B::row_step(1)));
  }
)re");
}

}  // namespace
}  // namespace jit
