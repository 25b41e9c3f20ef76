// The PTX parser: what a module declares. Bodies are in parser_body_test.cpp, errors in
// parser_error_test.cpp.
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ptx/syntax.h"

namespace jit::emulator::ptx {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

Module parse_items(const std::string& items) {
  return parse(".version 8.7\n.target sm_90a\n.address_size 64\n" + items);
}

Variable only_variable(const std::string& declaration) {
  const Module module = parse_items(declaration);
  EXPECT_THAT(module.variables, SizeIs(1)) << declaration;
  return module.variables.at(0);
}

template <class T>
T value_at(const Variable& variable, std::size_t offset) {
  T value;
  EXPECT_LE(offset + sizeof value, variable.initial.size());
  std::memcpy(&value, variable.initial.data() + offset, sizeof value);
  return value;
}

TEST(PtxParser, ReadsTheHeader) {
  const Module module =
      parse("// made by hand\n/* and\nby */ .version 9.0\n.target sm_90a, debug\n.address_size 64\n");
  EXPECT_EQ(module.version_major, 9);
  EXPECT_EQ(module.version_minor, 0);
  EXPECT_EQ(module.target, "sm_90a");
  EXPECT_THAT(module.functions, IsEmpty());
  EXPECT_EQ(parse(".version 8.10 .target texmode_independent, sm_80").version_minor, 10);
}

TEST(PtxParser, TakesTheZeroThatNvrtcCounts) {
  EXPECT_EQ(parse(std::string_view(".version 8.7\r\n.target sm_80\r\n\0\0", 31)).target, "sm_80");
}

TEST(PtxParser, ReadsFilesAndSkipsDebugSections) {
  const Module module = parse_items(R"(
.file 1 "/a/kernel.cu"
.file 7 "forward.h", 1700000000, 4096
.pragma "nounroll", "another";
.section .debug_str
{
$L__info_string0:
.b8 95,90 // no end }
.b64 $L__tmp33
.b32 $L__b-$L__a
.b32 .debug_abbrev+4
}
.section .debug_macinfo { .b8 0 { .b8 1 } }
.alias other, some;
.global .u32 behind;)");
  EXPECT_THAT(module.files, ElementsAre(std::pair(1, "/a/kernel.cu"), std::pair(7, "forward.h")));
  EXPECT_THAT(module.variables, SizeIs(1));
}

TEST(PtxParser, ReadsVariablesOfEverySpace) {
  const Module module = parse_items(R"(.visible .global .align 16 .b8 bytes[40];
.weak .const .f32 scale = 0f3F800000;
.extern .shared .align 1024 .b8 smem[];
.shared .v4 .f32 tile[2][3], one;
.common .global .u16 c;
.global .attribute(.managed) .align 4 .u32 managed = 4;
.extern .global .u64 elsewhere;)");
  ASSERT_THAT(module.variables, SizeIs(8));
  const Variable& bytes = module.variables[0];
  EXPECT_EQ(bytes.name, "bytes");
  EXPECT_EQ(bytes.space, Space::global);
  EXPECT_EQ(bytes.type, "b8");
  EXPECT_EQ(bytes.alignment, 16u);
  EXPECT_EQ(bytes.bytes, 40u);
  EXPECT_FALSE(bytes.is_extern);
  EXPECT_THAT(bytes.initial, IsEmpty());
  EXPECT_EQ(bytes.line, 4);
  EXPECT_EQ(module.variables[1].space, Space::constant);
  EXPECT_EQ(module.variables[1].alignment, 4u);
  EXPECT_EQ(value_at<float>(module.variables[1], 0), 1.0f);
  const Variable& smem = module.variables[2];
  EXPECT_EQ(smem.space, Space::shared);
  EXPECT_TRUE(smem.is_extern);
  EXPECT_EQ(smem.bytes, 0u);
  EXPECT_EQ(smem.alignment, 1024u);
  EXPECT_EQ(module.variables[3].bytes, 96u);
  EXPECT_EQ(module.variables[3].alignment, 16u);
  EXPECT_EQ(module.variables[4].name, "one");
  EXPECT_EQ(module.variables[4].bytes, 16u);
  EXPECT_EQ(module.variables[5].bytes, 2u);
  EXPECT_EQ(value_at<std::uint32_t>(module.variables[6], 0), 4u);
  EXPECT_TRUE(module.variables[7].is_extern);
  EXPECT_EQ(module.variables[7].line, 10);
}

TEST(PtxParser, ReadsInitialNumbers) {
  const Variable words = only_variable(".global .u32 w[5] = {1, -2, 0xFFFFFFFFU, 017, 0b101};");
  EXPECT_EQ(words.bytes, 20u);
  EXPECT_EQ(value_at<std::uint32_t>(words, 0), 1u);
  EXPECT_EQ(value_at<std::int32_t>(words, 4), -2);
  EXPECT_EQ(value_at<std::uint32_t>(words, 8), 0xFFFFFFFFu);
  EXPECT_EQ(value_at<std::uint32_t>(words, 12), 15u);
  EXPECT_EQ(value_at<std::uint32_t>(words, 16), 5u);

  const Variable few = only_variable(".const .align 4 .b8 few[1000] = {7, 200};");
  EXPECT_EQ(few.bytes, 1000u);
  EXPECT_THAT(few.initial, ElementsAre(7, 200));

  const Variable counted = only_variable(".global .s16 counted[] = {1, 2, -3};");
  EXPECT_EQ(counted.bytes, 6u);
  EXPECT_EQ(value_at<std::int16_t>(counted, 4), -3);

  const Variable nested = only_variable(".global .u8 nested[3][4] = {{1, 2}, {3}, {4, 5, 6, 7}};");
  EXPECT_THAT(nested.initial, ElementsAre(1, 2, 0, 0, 3, 0, 0, 0, 4, 5, 6, 7));

  const Variable lanes = only_variable(".global .v2 .u16 lanes[] = {{1, 2}, {3, 4}};");
  EXPECT_EQ(lanes.bytes, 8u);
  EXPECT_EQ(value_at<std::uint16_t>(lanes, 6), 4);

  EXPECT_EQ(value_at<std::int64_t>(only_variable(".global .u64 ll = -9223372036854775808;"), 0), INT64_MIN);
}

TEST(PtxParser, ReadsInitialReals) {
  const Variable singles = only_variable(".global .f32 f[4] = {0f3FB8AA3B, 1.5, -2e-3, 0d3FF8000000000000};");
  EXPECT_EQ(value_at<std::uint32_t>(singles, 0), 0x3FB8AA3Bu);
  EXPECT_EQ(value_at<float>(singles, 4), 1.5f);
  EXPECT_EQ(value_at<float>(singles, 8), -2e-3f);
  EXPECT_EQ(value_at<float>(singles, 12), 1.5f);
  const Variable doubles = only_variable(".global .f64 d[3] = {0d4008000000000000, 0fBFC00000, 1.};");
  EXPECT_EQ(value_at<double>(doubles, 0), 3.0);
  EXPECT_EQ(value_at<double>(doubles, 8), -1.5);
  EXPECT_EQ(value_at<double>(doubles, 16), 1.0);
  EXPECT_EQ(value_at<std::uint32_t>(only_variable(".global .f32 nan = 0f7FC01234;"), 0), 0x7FC01234u);
}

TEST(PtxParser, ReadsAddressesAsInitialValues) {
  const Variable table = only_variable(".global .u64 t[5] = {generic(a), 5, generic(a)+4+4, b, b+-16};");
  EXPECT_EQ(table.bytes, 40u);
  EXPECT_EQ(value_at<std::uint64_t>(table, 8), 5u);
  ASSERT_THAT(table.relocations, SizeIs(4));
  EXPECT_EQ(table.relocations[0].offset, 0u);
  EXPECT_EQ(table.relocations[0].symbol, "a");
  EXPECT_EQ(table.relocations[0].addend, 0);
  EXPECT_TRUE(table.relocations[0].generic);
  EXPECT_EQ(table.relocations[1].offset, 16u);
  EXPECT_EQ(table.relocations[1].addend, 8);
  EXPECT_FALSE(table.relocations[2].generic);
  EXPECT_EQ(table.relocations[3].symbol, "b");
  EXPECT_EQ(table.relocations[3].addend, -16);
}

// A packed struct with a pointer becomes this.
TEST(PtxParser, ReadsAddressesByteForByte) {
  const Variable packed = only_variable(R"(.global .align 1 .u8 p[10] = {1, 0XFF(generic(a)+4),
 0xFF00(generic(a)+4), 0xFF0000(generic(a)+4), 0xFF000000(generic(a)+4), 0xFF00000000(generic(a)+4),
 0xFF0000000000(generic(a)+4), 0xFF000000000000(generic(a)+4), 0xFF00000000000000(generic(a)+4), 9};)");
  EXPECT_THAT(packed.initial, ElementsAre(1, 0, 0, 0, 0, 0, 0, 0, 0, 9));
  ASSERT_THAT(packed.relocations, SizeIs(1));
  EXPECT_EQ(packed.relocations[0].offset, 1u);
  EXPECT_EQ(packed.relocations[0].symbol, "a");
  EXPECT_EQ(packed.relocations[0].addend, 4);
}

TEST(PtxParser, TakesADefinitionBesideExternDeclarations) {
  const Module module = parse_items(R"(
.extern .global .u32 x;
.visible .global .u32 x = 3;
.extern .global .u32 x;
.extern .shared .b8 smem[];
.extern .shared .b8 smem[];)");
  ASSERT_THAT(module.variables, SizeIs(2));
  EXPECT_FALSE(module.variables[0].is_extern);
  EXPECT_EQ(value_at<std::uint32_t>(module.variables[0], 0), 3u);
  EXPECT_EQ(module.variables[1].name, "smem");
}

TEST(PtxParser, ReadsParametersOfKernels) {
  const Module module = parse_items(R"(.visible .entry k(
	.param .u64 .ptr .global .align 128 pointer,
	.param .align 128 .b8 map[128],
	.param .u64 .ptr.shared plain,
	.param .f32 scale
) { ret; }
.entry bare { ret; }
.weak .entry empty() { })");
  ASSERT_THAT(module.functions, SizeIs(3));
  const Function& kernel = module.functions[0];
  EXPECT_TRUE(kernel.is_entry);
  EXPECT_EQ(kernel.name, "k");
  EXPECT_EQ(kernel.line, 4);
  ASSERT_THAT(kernel.parameters, SizeIs(4));
  EXPECT_EQ(kernel.parameters[0].name, "pointer");
  EXPECT_EQ(kernel.parameters[0].space, Space::param);
  EXPECT_EQ(kernel.parameters[0].alignment, 8u) << "what it points to is aligned to 128, not itself";
  EXPECT_EQ(kernel.parameters[0].bytes, 8u);
  EXPECT_EQ(kernel.parameters[1].alignment, 128u);
  EXPECT_EQ(kernel.parameters[1].bytes, 128u);
  EXPECT_EQ(kernel.parameters[2].name, "plain");
  EXPECT_EQ(kernel.parameters[3].type, "f32");
  EXPECT_THAT(module.functions[1].parameters, IsEmpty());
  EXPECT_THAT(module.functions[2].body, IsEmpty());
}

TEST(PtxParser, ReadsDirectivesOfKernels) {
  const Module module = parse_items(R"(.entry a() .maxntid 128, 2
.minnctapersm 2 .maxnreg 64 .maxnctapersm 3 .explicitcluster .reqnctapercluster 2, 1, 1
.pragma "some"; { }
.entry b() .reqntid 256 .maxclusterrank 8 .blocksareclusters .noreturn { }
.entry c() .maxntid 128, 1, 1 .reqnctapercluster 4 { })");
  ASSERT_THAT(module.functions, SizeIs(3));
  using Directives = std::map<std::string, std::vector<int>>;
  EXPECT_EQ(module.functions[0].directives, (Directives{{"maxntid", {128, 2, 1}},
                                                        {"minnctapersm", {2}},
                                                        {"maxnreg", {64}},
                                                        {"maxnctapersm", {3}},
                                                        {"explicitcluster", {}},
                                                        {"reqnctapercluster", {2, 1, 1}}}));
  EXPECT_EQ(
      module.functions[1].directives,
      (Directives{
          {"reqntid", {256, 1, 1}}, {"maxclusterrank", {8}}, {"blocksareclusters", {}}, {"noreturn", {}}}));
  EXPECT_EQ(module.functions[2].directives,
            (Directives{{"maxntid", {128, 1, 1}}, {"reqnctapercluster", {4, 1, 1}}}));
}

TEST(PtxParser, KeepsFunctionsAndDropsTheirDeclarations) {
  const Module module = parse_items(R"(
.func  (.param .b32 func_retval0) twice (.param .b32 twice_param_0) ;
.extern .func __assertfail ( .param .b64 a, .param .align 8 .b8 rest[] ) .noreturn ;
.extern .func none;
.entry declared();
.visible .func  (.param .b32 func_retval0) twice(
	.param .b32 twice_param_0
)
{
	.reg .b32 	%r<3>;
	ld.param.u32 	%r1, [twice_param_0];
	st.param.b32 	[func_retval0+0], %r1;
	ret;
}
.func (.reg .u32 result) add_one (.reg .u32 x) .noreturn { add.u32 result, x, 1; ret; })");
  ASSERT_THAT(module.functions, SizeIs(2));
  EXPECT_FALSE(module.functions[0].is_entry);
  EXPECT_EQ(module.functions[0].name, "twice");
  ASSERT_THAT(module.functions[0].results, SizeIs(1));
  EXPECT_EQ(module.functions[0].results[0].name, "func_retval0");
  EXPECT_THAT(module.functions[0].body, SizeIs(3));
  EXPECT_EQ(module.functions[1].parameters.at(0).space, Space::reg);
}

TEST(PtxParser, ReadsConstantExpressions) {
  const auto value = [](const std::string& expression) {
    return value_at<std::int64_t>(only_variable(".global .s64 v = " + expression + ";"), 0);
  };
  EXPECT_EQ(value("1 + 2 * 3"), 7);
  EXPECT_EQ(value("(1 + 2) * 3"), 9);
  EXPECT_EQ(value("10 - 4 - 3"), 3);
  EXPECT_EQ(value("1 << 4 | 3"), 19);
  EXPECT_EQ(value("7 & 5 ^ 1"), 4);
  EXPECT_EQ(value("-7 / 2"), -3);
  EXPECT_EQ(value("-7 % 2"), -1);
  EXPECT_EQ(value("-8 >> 1"), -4);
  EXPECT_EQ(value("0xFFFFFFFFFFFFFFF8U >> 1"), 0x7FFFFFFFFFFFFFFC);
  EXPECT_EQ(value("(.s64)-9223372036854775808 / -1"), INT64_MIN);
  EXPECT_EQ(value("~0"), -1);
  EXPECT_EQ(value("!5 + !0"), 1);
  EXPECT_EQ(value("- - 3"), 3);
  EXPECT_EQ(value("-1 < 1"), 1);
  EXPECT_EQ(value("-1 < 1U"), 0) << "one unsigned side makes the comparison unsigned";
  EXPECT_EQ(value("(.u64)-1 >= (.s64)1"), 1);
  EXPECT_EQ(value("3 == 3 && 4 != 4 || 2 <= 1"), 0);
  EXPECT_EQ(value("5 > 4 ? 10 : 20"), 10);
  EXPECT_EQ(value("0 ? 10 : 0 ? 20 : 30"), 30);
  EXPECT_EQ(value("WARP_SZ * 2"), 64);
}

}  // namespace
}  // namespace jit::emulator::ptx
