// The PTX parser: what stands in the body of a function.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ptx/syntax.h"

namespace jit::emulator::ptx {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;
using Kind = Operand::Kind;

// The first line of `body` is line 4.
Function parse_body(const std::string& body) {
  Module module = parse(".version 8.7\n.target sm_90a\n.entry k() {\n" + body + "\n}\n");
  EXPECT_THAT(module.functions, SizeIs(1));
  return module.functions.at(0);
}

Instruction only_instruction(const std::string& text) {
  const Function function = parse_body(text);
  EXPECT_THAT(function.body, SizeIs(1)) << text;
  return function.body.at(0);
}

std::vector<std::string> names(const Operand& operand) {
  std::vector<std::string> result;
  for (const Operand& element : operand.elements) result.push_back(element.name);
  return result;
}

std::vector<std::string> operand_names(const Instruction& instruction) {
  std::vector<std::string> result;
  for (const Operand& operand : instruction.operands) result.push_back(operand.name);
  return result;
}

TEST(PtxParserBody, SplitsAnInstruction) {
  const Instruction instruction =
      only_instruction("\n  mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f1, %f2}, %r1, %r2, %f3;");
  EXPECT_EQ(instruction.opcode, "mma");
  EXPECT_THAT(instruction.modifiers,
              ElementsAre("sync", "aligned", "m16n8k16", "row", "col", "f32", "bf16", "bf16", "f32"));
  EXPECT_EQ(instruction.full_name(), "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32");
  EXPECT_EQ(instruction.line, 5);
  EXPECT_FALSE(instruction.guard);
  EXPECT_FALSE(instruction.source);
  EXPECT_THAT(names(instruction.operands.at(0)), ElementsAre("%f1", "%f2"));
}

TEST(PtxParserBody, KeepsDoubleColonsInAModifier) {
  const Instruction copy = only_instruction(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%r1], [%rd1, {%r2, 64}], [%r3+8], %rd2;");
  EXPECT_THAT(copy.modifiers, ElementsAre("async", "bulk", "tensor", "2d", "shared::cluster", "global",
                                          "mbarrier::complete_tx::bytes", "L2::cache_hint"));
  ASSERT_THAT(copy.operands, SizeIs(4));
  const Operand& source = copy.operands[1];
  EXPECT_EQ(source.kind, Kind::address);
  EXPECT_EQ(source.name, "%rd1");
  ASSERT_THAT(source.elements, SizeIs(1));
  EXPECT_EQ(source.elements[0].kind, Kind::vector);
  EXPECT_EQ(source.elements[0].elements.at(0).name, "%r2");
  EXPECT_EQ(source.elements[0].elements.at(1).bits, 64u);
  EXPECT_EQ(copy.operands[2].offset, 8);
  EXPECT_THAT(only_instruction("ld.global.L1::no_allocate.L2::256B.v4.f32 {a,b,c,d}, [e];").modifiers,
              ElementsAre("global", "L1::no_allocate", "L2::256B", "v4", "f32"));
}

TEST(PtxParserBody, ReadsGuards) {
  const Function function = parse_body("@%p1 bra L;\n@!%p2 bra.uni L;\n@ ! p bra L;\nL:");
  ASSERT_THAT(function.body, SizeIs(3));
  EXPECT_EQ(function.body[0].guard.value().predicate, "%p1");
  EXPECT_FALSE(function.body[0].guard.value().negated);
  EXPECT_TRUE(function.body[1].guard.value().negated);
  EXPECT_EQ(function.body[2].guard.value().predicate, "p");
  EXPECT_TRUE(function.body[2].guard.value().negated);
}

TEST(PtxParserBody, ReadsNumbers) {
  struct Case {
    const char* text;
    Kind kind;
    std::uint64_t bits;
    bool is_single = false;
  };
  for (const Case& each : {Case{"42", Kind::integer, 42},
                           {"-1", Kind::integer, ~std::uint64_t{0}},
                           {"0x1fU", Kind::integer, 31},
                           {"0b101", Kind::integer, 5},
                           {"0b1U", Kind::integer, 1},
                           {"017", Kind::integer, 15},
                           {"0", Kind::integer, 0},
                           {"0U", Kind::integer, 0},
                           {"18446744073709551615", Kind::integer, ~std::uint64_t{0}},
                           {"4*(2+WARP_SZ)", Kind::integer, 136},
                           {"0f3F800000", Kind::real, 0x3F800000, true},
                           {"0FbF80abcD", Kind::real, 0xBF80ABCD, true},
                           {"0d4008000000000000", Kind::real, 0x4008000000000000},
                           {"1.5", Kind::real, 0x3FF8000000000000},
                           {"-1.5", Kind::real, 0xBFF8000000000000},
                           {".5", Kind::real, 0x3FE0000000000000},
                           {"1e3", Kind::real, 0x408F400000000000},
                           {"2.5E-1", Kind::real, 0x3FD0000000000000}}) {
    const Operand operand = only_instruction(std::string("mov.b64 x, ") + each.text + ";").operands.at(1);
    EXPECT_EQ(operand.kind, each.kind) << each.text;
    EXPECT_EQ(operand.bits, each.bits) << each.text;
    EXPECT_EQ(operand.is_single, each.is_single) << each.text;
    EXPECT_FALSE(operand.negated) << each.text;
  }
}

TEST(PtxParserBody, ReadsNamesAndWhatTheyStandFor) {
  const Instruction special = only_instruction("mov.u32 %r1, %cluster_ctaid.x;");
  EXPECT_THAT(operand_names(special), ElementsAre("%r1", "%cluster_ctaid.x"));
  const Operand variable = only_instruction("mov.u64 %rd1, table+16;").operands.at(1);
  EXPECT_EQ(variable.kind, Kind::name);
  EXPECT_EQ(variable.name, "table");
  EXPECT_EQ(variable.offset, 16);
  EXPECT_TRUE(only_instruction("selp.b32 a, 1, 2, !%p1;").operands.at(3).negated);
  EXPECT_TRUE(only_instruction("foo.f32 a, -%f1;").operands.at(1).negated);
  EXPECT_EQ(only_instruction("mov.b64 {%r1, _}, %rd1;").operands.at(0).elements.at(1).kind, Kind::discard);
  EXPECT_THAT(operand_names(only_instruction("mov.u64 $a, _Z1x$b;")), ElementsAre("$a", "_Z1x$b"));
}

TEST(PtxParserBody, ReadsAddresses) {
  const auto address = [](const std::string& text) {
    Operand operand = only_instruction("ld.u32 x, " + text + ";").operands.at(1);
    EXPECT_EQ(operand.kind, Kind::address);
    return operand;
  };
  EXPECT_EQ(address("[%rd1]").name, "%rd1");
  EXPECT_EQ(address("[%rd1+-4]").offset, -4);
  EXPECT_EQ(address("[ smem + 4*8 ]").offset, 32);
  EXPECT_EQ(address("[0x100]").bits, 256u);
  EXPECT_EQ(address("[0x100]").name, "");
  EXPECT_THAT(address("[%rd1, {1, 2}, {3}]").elements, SizeIs(2));
}

TEST(PtxParserBody, ReadsPairs) {
  const Instruction compare = only_instruction("setp.lt.and.s32 p|q, a, b, !c;");
  ASSERT_THAT(compare.operands, SizeIs(4));
  EXPECT_EQ(compare.operands[0].kind, Kind::pair);
  EXPECT_THAT(names(compare.operands[0]), ElementsAre("p", "q"));
  const Operand elect = only_instruction("elect.sync _ | %p1, -1;").operands.at(0);
  EXPECT_EQ(elect.kind, Kind::pair);
  EXPECT_EQ(elect.elements.at(0).kind, Kind::discard);
  EXPECT_EQ(elect.elements.at(1).name, "%p1");
}

TEST(PtxParserBody, ReadsAsManyElementsAsWgmmaHas) {
  std::string text = "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {";
  for (int i = 0; i < 128; ++i) text += (i == 0 ? "%f" : ", %f") + std::to_string(i);
  const Instruction wgmma = only_instruction(text + "}, %rd1, %rd2, p, 1, -1, 0, 1;");
  ASSERT_THAT(wgmma.operands, SizeIs(8));
  EXPECT_THAT(wgmma.operands[0].elements, SizeIs(128));
  EXPECT_EQ(wgmma.operands[0].elements[127].name, "%f127");
  EXPECT_EQ(wgmma.operands[5].bits, ~std::uint64_t{0});
}

TEST(PtxParserBody, ReadsDeclarations) {
  const Function function = parse_body(R"(
	.reg .pred 	%p<33>;
	.reg .b64 	%SPL, a, b<2>;
	.reg .f32 %f<101>;
	.local .align 8 .b8 	__local_depot2[152];
	.shared .align 8 .b8 bars[32], more[4];
	.param .b32 argument;)");
  ASSERT_THAT(function.registers, SizeIs(5));
  EXPECT_EQ(function.registers[0].prefix, "%p");
  EXPECT_EQ(function.registers[0].type, "pred");
  EXPECT_EQ(function.registers[0].count, 33);
  EXPECT_EQ(function.registers[1].prefix, "%SPL");
  EXPECT_EQ(function.registers[1].count, 0);
  EXPECT_EQ(function.registers[3].prefix, "b");
  EXPECT_EQ(function.registers[3].count, 2);
  EXPECT_EQ(function.registers[3].type, "b64");
  ASSERT_THAT(function.variables, SizeIs(4));
  EXPECT_EQ(function.variables[0].space, Space::local);
  EXPECT_EQ(function.variables[0].bytes, 152u);
  EXPECT_EQ(function.variables[1].space, Space::shared);
  EXPECT_EQ(function.variables[2].name, "more");
  EXPECT_EQ(function.variables[3].space, Space::param);
}

TEST(PtxParserBody, MovesStaticVariablesToTheModule) {
  const Module module = parse(R"(.version 8.7 .target sm_90a
.entry k() { .global .u32 count = 3; .reg .b32 r; ld.global.u32 r, [count]; { .const .u8 count; mov.u64 r, count; } }
.entry l() { .global .u32 count; st.global.u32 [count+4], 1; })");
  ASSERT_THAT(module.variables, SizeIs(3));
  EXPECT_THAT(module.variables[0].initial, ElementsAre(3, 0, 0, 0));
  const Function& first = module.functions.at(0);
  EXPECT_EQ(first.body.at(0).operands.at(1).name, module.variables[0].name);
  EXPECT_EQ(first.body.at(0).operands.at(0).name, "r");
  EXPECT_EQ(first.body.at(1).operands.at(1).name, module.variables[1].name);
  EXPECT_EQ(module.functions.at(1).body.at(0).operands.at(0).name, module.variables[2].name);
  EXPECT_NE(module.variables[0].name, module.variables[1].name);
  EXPECT_NE(module.variables[0].name, module.variables[2].name);
}

TEST(PtxParserBody, PlacesLabels) {
  const Function function = parse_body("a: b: ret; $L__BB0_1:\n.pragma \"nounroll\";\nbra a; end:");
  EXPECT_THAT(function.labels,
              UnorderedElementsAre(Pair("a", 0), Pair("b", 0), Pair("$L__BB0_1", 1), Pair("end", 2)));
}

TEST(PtxParserBody, ReadsListsOfTargetsAndCalls) {
  const Function function = parse_body(R"(
	brx.idx %r1, table;
table: .branchtargets L0, L1, L0;
L0: L1:
	prototype_0 : .callprototype (.param .b32 _) _ (.param .b32 _, .param .align 8 .b8 _[16]);
	none: .callprototype _ .noreturn;
	list: .calltargets f, g;
	call (retval0), 
	%rd38, 
	(
	param0, 4
	)
	, prototype_0;
	call.uni f, ();
	call f;)");
  EXPECT_THAT(function.branch_targets, UnorderedElementsAre(Pair("table", ElementsAre("L0", "L1", "L0"))));
  EXPECT_THAT(function.labels, UnorderedElementsAre(Pair("L0", 1), Pair("L1", 1)));
  ASSERT_THAT(function.body, SizeIs(4));
  const Instruction& call = function.body[1];
  ASSERT_THAT(call.operands, SizeIs(4));
  EXPECT_EQ(call.operands[0].kind, Kind::vector);
  EXPECT_THAT(names(call.operands[0]), ElementsAre("retval0"));
  EXPECT_THAT(call.operands[2].elements, SizeIs(2));
  EXPECT_THAT(function.body[2].operands.at(1).elements, IsEmpty());
}

TEST(PtxParserBody, MapsInstructionsToTheSource) {
  const Function function = parse_body(R"(	mov.u32 a, 1;
	.loc	1 20 2
	mov.u32 a, 2; mov.u32 a, 3;
	.loc 1 31 3
	.loc	4 7 9, function_name $L__info_string0+12, inlined_at 1 31 3
	mov.u32 a, 4;
	.loc 2 8 1, function_name x, inlined_at 4 7 9
L:	mov.u32 a, 5;
	.loc 1 0 3
	mov.u32 a, 6;)");
  ASSERT_THAT(function.body, SizeIs(6));
  EXPECT_FALSE(function.body[0].source);
  EXPECT_EQ(function.body[1].source, (SourceLine{1, 20, 2}));
  EXPECT_EQ(function.body[2].source, (SourceLine{1, 20, 2}));
  EXPECT_EQ(function.body[3].source, (SourceLine{4, 7, 9})) << "where the inlined code stands";
  EXPECT_EQ(function.body[4].source, (SourceLine{2, 8, 1}));
  EXPECT_FALSE(function.body[5].source) << "line 0 is no line";
  EXPECT_EQ(function.body[3].line, 9);
  EXPECT_EQ(function.body[5].line, 13);
}

TEST(PtxParserBody, ForgetsTheSourceBetweenFunctions) {
  const Module module = parse(".version 8.7 .target sm_90a .entry a { .loc 1 2 3\n ret; } .entry b { ret; }");
  EXPECT_TRUE(module.functions.at(0).body.at(0).source);
  EXPECT_FALSE(module.functions.at(1).body.at(0).source);
}

// The wait of an mbarrier, inlined twice: both blocks have the same names.
TEST(PtxParserBody, MakesNamesOfBlocksUnique) {
  const std::string wait = R"({
.reg .pred P1;
LAB_WAIT:
mbarrier.try_wait.parity.shared::cta.b64 P1, [%r31], %r42;
@P1 bra DONE;
bra LAB_WAIT;
DONE:
}
)";
  const Function function = parse_body(".reg .b32 %r<50>;\n" + wait + wait + "DONE: ret;");
  ASSERT_THAT(function.body, SizeIs(7));
  ASSERT_THAT(function.registers, SizeIs(3));
  EXPECT_NE(function.registers[1].prefix, function.registers[2].prefix);
  EXPECT_THAT(function.labels, SizeIs(5));
  EXPECT_EQ(function.labels.at("DONE"), 6);
  for (const int first : {0, 3}) {
    const std::string predicate = function.registers[first == 0 ? 1 : 2].prefix;
    EXPECT_EQ(function.body[first].operands[0].name, predicate);
    EXPECT_EQ(function.body[first].operands[1].name, "%r31");
    EXPECT_EQ(function.body[first + 1].guard.value().predicate, predicate);
    EXPECT_EQ(function.labels.at(function.body[first + 1].operands[0].name), first + 3);
    EXPECT_EQ(function.labels.at(function.body[first + 2].operands[0].name), first);
  }
}

TEST(PtxParserBody, FindsNamesFromInnerToOuterBlocks) {
  const Function function = parse_body(R"(
.reg .b32 a, %r<4>;
mov.u32 a, %r1;
{
  mov.u32 a, %r1;
  .reg .b32 a, %r<2>;
  mov.u32 a, {%r1, %r2, %r01};
  { .reg .b32 b; .local .b32 a; mov.u32 b, [a+4], %r0|_; }
  mov.u32 a, %r3;
}
mov.u32 a, %r1;)");
  ASSERT_THAT(function.body, SizeIs(6));
  ASSERT_THAT(function.registers, SizeIs(5));
  const std::string inner = function.registers[2].prefix, range = function.registers[3].prefix;
  EXPECT_NE(inner, "a");
  EXPECT_EQ(function.registers[3].count, 2);
  EXPECT_THAT(operand_names(function.body[0]), ElementsAre("a", "%r1"));
  EXPECT_THAT(operand_names(function.body[1]), ElementsAre("a", "%r1")) << "before its declaration";
  EXPECT_EQ(function.body[2].operands[0].name, inner);
  EXPECT_THAT(names(function.body[2].operands[1]), ElementsAre(range + "1", "%r2", range + "1"))
      << "%r<2> has no %r2";
  EXPECT_EQ(function.body[3].operands[0].name, function.registers[4].prefix);
  EXPECT_EQ(function.body[3].operands[1].name, function.variables.at(0).name);
  EXPECT_EQ(function.body[3].operands[1].offset, 4);
  EXPECT_EQ(function.body[3].operands[2].elements[0].name, range + "0");
  EXPECT_THAT(operand_names(function.body[4]), ElementsAre(inner, "%r3"));
  EXPECT_THAT(operand_names(function.body[5]), ElementsAre("a", "%r1"));
}

TEST(PtxParserBody, FindsLabelsOfTheBlockBeforeTheirPlace) {
  const Function function = parse_body(R"(
bra X;
{
  bra X;
  { bra X; bra Y; X: }
  list: .branchtargets X, Y;
  brx.idx r, list;
  X: ret;
}
Y: X: ret;)");
  ASSERT_THAT(function.body, SizeIs(7));
  const auto target = [&](int i) { return function.labels.at(function.body[i].operands[0].name); };
  EXPECT_EQ(target(0), 6);
  EXPECT_EQ(target(1), 5);
  EXPECT_EQ(target(2), 4);
  EXPECT_EQ(target(3), 6);
  const auto& targets = function.branch_targets.at(function.body[4].operands[1].name);
  ASSERT_THAT(targets, SizeIs(2));
  EXPECT_EQ(function.labels.at(targets[0]), 5);
  EXPECT_EQ(function.labels.at(targets[1]), 6);
}

TEST(PtxParserBody, LabelsOfABlockEndWithIt) {
  const Function function = parse_body("{ X: ret; } bra X;");
  EXPECT_EQ(function.body.at(1).operands.at(0).name, "X");
  EXPECT_EQ(function.labels.count("X"), 0u);
}

}  // namespace
}  // namespace jit::emulator::ptx
