// The PTX parser: what it says of malformed text.
#include <ctime>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ptx/syntax.h"

namespace jit::emulator::ptx {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

struct Case {
  std::string text;
  int line;
  std::string message;
};

void expect_error(const Case& each, const std::string& before = "", const std::string& behind = "") {
  try {
    parse(before + each.text + behind);
    ADD_FAILURE() << "accepted: " << each.text;
  } catch (const PtxError& error) {
    EXPECT_EQ(error.line(), each.line) << each.text << ": " << error.what();
    EXPECT_THAT(error.what(), HasSubstr(each.message)) << each.text;
    if (each.line > 0) {
      EXPECT_THAT(error.what(), StartsWith("PTX line " + std::to_string(each.line) + ": "));
    }
  }
}

TEST(PtxParserErrors, OfTheHeader) {
  for (const Case& each : std::vector<Case>{
           {"", 1, "expected '.version' at the beginning of a PTX text, found the end of the text"},
           {"\n\nhello", 3, "found 'hello'"},
           {".version x", 1, "expected a version such as 8.7"},
           {".version 8", 1, "expected a version such as 8.7"},
           {".version 8e1", 1, "expected a version such as 8.7"},
           {".version 1234.5", 1, "expected a version such as 8.7"},
           {".version 8.7\n.global", 2, "expected '.target' after '.version', found '.global'"},
           {".version 8.7\n.target", 2, "expected a target such as sm_90a"},
           {".version 8.7\n.target debug", 2, "expected a target such as sm_90a in '.target'"},
           {".version 8.7\n.target sm_80, sm_90", 2, "a second target sm_90 beside sm_80"},
           {".version 8.7 .target sm_80\n.address_size 32", 2, "addresses of 32 bits"},
           {".version 8.7 .target sm_80\n.address_size 99", 2, "at most 64"},
       }) {
    expect_error(each);
  }
}

TEST(PtxParserErrors, OfTheModule) {
  for (const Case& each : std::vector<Case>{
           {"foo", 3, "expected a directive, which begins with '.', found 'foo'"},
           {".foo", 3, "'.foo' is no directive of a module"},
           {".version 8.7", 3, "'.version' is no directive"},
           {".tex .u32 x;", 3, "'.tex' is no directive"},
           {".visible\n x", 4, "expected a variable, '.func' or '.entry' after '.visible', found 'x'"},
           {".visible .visible .global .u32 x;", 3,
            "expected a variable, '.func' or '.entry', found '.visible'"},
           {".reg .b32 x;", 3, ".reg variables can only be declared in functions"},
           {".local .b32 x;", 3, ".local variables can only be declared in functions"},
           {".file x", 3, "expected a number after '.file', found 'x'"},
           {".file 1 x", 3, "expected the name of a file"},
           {".file 1 \"a\"\n.file 1 \"b\"", 4, "file 1 is named a second time"},
           {".file 99999999999 \"a\"", 3, "at most 2147483647"},
           {".pragma 1;", 3, "expected a string after .pragma, found '1'"},
           {".section .debug_str\n{ .b8 1,\n", 5, "the section of line 3 is not closed by '}'"},
           {".section .debug_str 5", 3, "expected the name of a section, then '{', found '5'"},
           {".alias a b;", 3, "between the two names of '.alias'"},
       }) {
    expect_error(each, ".version 8.7\n.target sm_90a\n");
  }
}

TEST(PtxParserErrors, OfVariables) {
  for (const Case& each : std::vector<Case>{
           {".global x;", 3, "expected the type of a variable such as .b32, found 'x'"},
           {".global .u7 x;", 3, "expected the type of a variable such as .b32, found '.u7'"},
           {".global .pred x;", 3, "found '.pred'"},
           {".global .u32 .u32 x;", 3, "found '.u32'"},
           {".global .v3 .u32 x;", 3, "found '.v3'"},
           {".global .u32 5;", 3, "expected the name of a variable, found '5'"},
           {".global .u32 x\n.global .u32 y;", 4, "expected ';' after the declaration of x, found '.global'"},
           {".global .align 3 .u32 x;", 3, "an alignment of 3; it must be a power of two"},
           {".global .align 0 .u32 x;", 3, "an alignment of 0"},
           {".global .align 2097152 .u32 x;", 3, "at most 1048576"},
           {".global .u32 x[0];", 3, "x is an array without elements"},
           {".global .u32 x[y];", 3, "expected the length of an array, found 'y'"},
           {".global .u32 x[3;", 3, "expected ']' after the length of an array, found ';'"},
           {".global .u32 x[];", 3, "x[] has no length"},
           {".global .u32 x[2][];", 3, "expected the length of an array, found ']'"},
           {".global .u32 x[1][1][1][1][1][1][1][1][1];", 3, "more than 8 dimensions"},
           {".global .b8 x[1073741825];", 3, "x has 1073741825 bytes or more; at most 1073741824"},
           {".global .b128 x[2147483647][2147483647][2147483647];", 3, "bytes or more"},
           {".global .b8 x[1000000000];\n.global .b8 y[1000000000];", 4,
            "the variables of the module take more"},
           {".global .u32 x;\n.const .u32 x;", 4, "x is defined a second time; the first is on line 3"},
           {".extern .global .u32 x;\n.shared .u32 x;", 4, "x is declared in another space than on line 3"},
           {".global .attribute x;", 3, "expected '(' before a list, found 'x'"},
           {".global .attribute(.managed .u32 x;", 3, "expected ')' to close a list"},
       }) {
    expect_error(each, ".version 8.7\n.target sm_90a\n");
  }
}

TEST(PtxParserErrors, OfInitialValues) {
  for (const Case& each : std::vector<Case>{
           {".global .u32 x = y;", 3, "an address as a value of type .u32"},
           {".global .u32 x = ;", 3, "expected a number or the address of a variable, found ';'"},
           {".global .u32 x = 1.5;", 3, "a real number as a value of type .u32"},
           {".global .f32 x = 1;", 3, "a whole number as a value of type .f32"},
           {".global .f32 x = 1e300;", 3, "beyond the range of .f32"},
           {".global .f16 x = 1.0;", 3, "a variable of type .f16 can have no initial value"},
           {".global .u32 x = {1};", 3, "expected a number or the address"},
           {".global .u32 x[2] = 1;", 3, "expected '{' before the elements of x, found '1'"},
           {".global .u32 x[2] = {1, 2,\n3};", 4, "more than the 2 elements that x has in dimension 1"},
           {".global .u32 x[2][2] = {{1}, {1, 2, 3}};", 3, "in dimension 2"},
           {".global .u32 x[2] = {1 2};", 3, "expected '}' or ',' after an element of x, found '2'"},
           {".global .u32 x[2] = {};", 3, "expected a number or the address of a variable, found '}'"},
           {".global .u64 x = generic(1);", 3, "expected the name of a variable, found '1'"},
           {".global .u64 x = generic(y;", 3, "expected ')' after the name of a variable, found ';'"},
           {".global .u64 x = y+1.5;", 3, "an offset must be a whole number"},
           {".global .u8 x[2] = {0xff(y), 0xff0000(y)};", 3, "expected byte 2 of y"},
           {".global .u8 x[2] = {0xff(y), 0xff00(z)};", 3, "expected byte 2 of y"},
           {".global .u8 x[2] = {0xff00(y)};", 3, "expected byte 1 of y"},
           {".global .u8 x[2] = {0xff(y), 2};", 3, "only 1 of the eight bytes of the address of y"},
           {".global .u8 x[8] = {0xff(y), 0xff00(y)};", 3, "only 2 of the eight bytes"},
           {".shared .u32 x = 1;", 3, "x can have no initial value"},
           {".extern .global .u32 x = 1;", 3, "x can have no initial value"},
           {".global .b8 x[2][100000000] = {{1}, {1}};", 3, "more bytes than the emulator keeps"},
           {".global .u32 x = 1 / 0;", 3, "divides by zero"},
           {".global .u32 x = 1 << 64;", 3, "a shift by 64; 0 to 63 are possible"},
           {".global .u32 x = 1.5 + 1;", 3, "'+' on a real number"},
           {".global .u32 x = (1;", 3, "expected ')' after a constant expression, found ';'"},
           {".global .u32 x = 1 ? 2;", 3, "expected ':' between the two choices of '?'"},
           {".global .u32 x = 1 + y;", 3, "expected a number, found 'y'"},
           {".global .u32 x = " + std::string(100, '(') + "1", 3, "nested deeper than 64 levels"},
           {".global .u32 x = " + std::string(100000, '~') + "1", 3, "nested deeper than 64 levels"},
       }) {
    expect_error(each, ".version 8.7\n.target sm_90a\n");
  }
}

TEST(PtxParserErrors, OfFunctions) {
  for (const Case& each : std::vector<Case>{
           {".entry {}", 3, "expected the name of a function, found '{'"},
           {".entry k(\n.param .u32 a\n.param .u32 b) {}", 5, "expected ')' or ',' after the parameter a"},
           {".entry k(.u32 a) {}", 3, "expected a parameter: '.param' or '.reg', found '.u32'"},
           {".entry k(.reg .u32 a) {}", 3, "parameter a of the kernel k must be .param"},
           {".entry k(.param .u32 a[]) {}", 3, "parameter a[] of the kernel k has no length"},
           {".entry k(.param .u32 a, .param .u32 a) {}", 3, "a is declared a second time"},
           {".entry k()\n.foo\n4 {}", 4, "'.foo' is no directive of a function that the emulator knows"},
           {".entry k() .maxntid {}", 3, "expected a number after .maxntid, found '{'"},
           {".entry k() .maxntid 1,2,3,4 {}", 3, "expected '{' before the body of k, or ';', found ','"},
           {".entry k() .maxntid 99999999999 {}", 3, "a number after .maxntid is 99999999999"},
           {".entry k()\nret;", 4, "expected '{' before the body of k, or ';', found 'ret'"},
           {".entry k() {}\n.entry k() {}", 4, "k is defined a second time; the first is on line 3"},
           {".global .u32 k;\n.entry k() {}", 4, "k is defined a second time"},
           {".entry k() {\nret;\n{ret;\n", 6, "the text ends within k: no '}' closes the '{' of line 5"},
       }) {
    expect_error(each, ".version 8.7\n.target sm_90a\n");
  }
}

TEST(PtxParserErrors, OfStatements) {
  for (const Case& each : std::vector<Case>{
           {"ret;;", 4, "expected an instruction, a label, a directive, '{' or '}', found ';'"},
           {"\n5", 5, "expected an instruction, a label, a directive, '{' or '}', found '5'"},
           {"ret", 5, "expected an operand, found '}'"},
           {"add.u32 %r1, %r2\nret;", 5, "expected ',' or ';' after an operand of add.u32, found 'ret'"},
           {"%r1 = 5;", 4, "expected an instruction or a label with ':', found '%r1'"},
           {"@5 ret;", 4, "expected a predicate after '@', found '5'"},
           {"@%p1 L: ret;", 4, "':'"},
           {"@%p1 { ret; }", 4, "expected an instruction after a guard, found '{'"},
           {"L: ret;\nL: ret;", 5, "L is declared a second time in this block; the first is on line 4"},
           {"_: ret;", 4, "'_' cannot be a label"},
           {".foo;", 4, "'.foo' is no directive that can stand in the body of a function"},
           {".maxntid 4;", 4, "'.maxntid' is no directive that can stand in the body"},
           {".branchtargets A;", 4, "expected a label with ':' before .branchtargets"},
           {"T: .branchtargets 5;", 4, "expected a label, found '5'"},
           {"T: .calltargets f g;", 4, "after a function of .calltargets"},
           {"P: .callprototype f;", 4, "expected '_' in the place of the name in .callprototype, found 'f'"},
           {".loc 1\n2;", 5, "expected a column, found ';'"},
           {".loc 1 2 3, inlined_at 1 2 3", 4, "expected 'function_name' after ','"},
           {".loc 1 2 3, function_name F", 5, "expected ',' before 'inlined_at'"},
           {".loc 1 2 -3", 4, "expected a column, found '-'"},
           {std::string(100, '{'), 4, "blocks nested deeper than 64 levels"},
       }) {
    expect_error(each, ".version 8.7\n.target sm_90a\n.entry k() {\n", "\n}\n");
  }
}

TEST(PtxParserErrors, OfRegisters) {
  for (const Case& each : std::vector<Case>{
           {".reg x;", 4, "expected the type of a variable such as .b32, found 'x'"},
           {".reg .v4 .f32 x;", 4, "vector registers (.v2, .v4) are not known"},
           {".reg .b32 x<0>;", 4, "x<0> declares no register"},
           {".reg .b32 x<1048577>;", 4, "the number of registers is 1048577; at most 1048576"},
           {".reg .b32 x<1000000>;\n.reg .b32 y<50000>;", 5, "k declares more than 1048576 registers with y"},
           {".reg .b32 x<y>;", 4, "expected the number of registers, found 'y'"},
           {".reg .b32 x<4;", 4, "expected '>' after the number of registers, found ';'"},
           {".reg .b32 x y;", 4, "expected ';' after the declaration of x, found 'y'"},
           {".reg .b32 x,;", 4, "expected the name of a register, found ';'"},
           {".reg .b32 x1<4>;", 4, "ranges of registers whose name ends in a digit"},
           {".reg .b32 x;\n.reg .b64 x;", 5,
            "x is declared a second time in this block; the first is on line 4"},
           {".reg .b32 x<4>;\n.reg .b32 x<2>;", 5, "x is declared a second time"},
           {".reg .b32 x<4>;\n.reg .b32 x3;", 5, "x3 is declared a second time"},
           {".reg .b32 x9, x3;\n.reg .b32 x<4>;", 5,
            "x3 is declared a second time in this block; the first is on line 4"},
           {".reg .b32 x;\nx: ret;", 5, "x is declared a second time"},
           {"{ .reg .b32 x; .shared .b32 x; }", 4, "x is declared a second time"},
       }) {
    expect_error(each, ".version 8.7\n.target sm_90a\n.entry k() {\n", "\n}\n");
  }
}

TEST(PtxParserErrors, OfOperands) {
  for (const Case& each : std::vector<Case>{
           {"mov a, ;", 4, "expected an operand, found ';'"},
           {"mov a, {};", 4, "expected an operand, found '}'"},
           {"mov a, {b;", 4, "expected '}' or ',' after an element of a vector, found ';'"},
           {"mov a, {{{{{b}}}}};", 4, "brackets nested deeper than 4 levels"},
           {"ld a, [];", 4, "expected a register, a variable or a number as address, found ']'"},
           {"ld a, [_];", 4, "expected a register, a variable or a number as address, found '_'"},
           {"ld a, [b;", 4, "expected ']' after an address, found ';'"},
           {"ld a, [b-4];", 4, "expected '+' before an offset, as in [%rd1+-4], found '-'"},
           {"ld a, [%rd1+%rd2];", 4, "expected a number as offset, found '%rd2'"},
           {"ld a, [b+1.5];", 4, "an offset must be a whole number"},
           {"ld a, [1.5];", 4, "an address must be a whole number"},
           {"ld a, b[4];", 4, "elements by index are not known to the emulator; write b + the offset"},
           {"mov a, %r1+4;", 4, "'+' after the register %r1"},
           {"mov a, -_;", 4, "expected a register, found '_'"},
           {"setp a|5, b;", 4, "the operand behind '|' must be a register or _"},
           {"mov a, \"b\";", 4, "expected an operand, found the string 'b'"},
           {"mov a, .x;", 4, "expected an operand, found '.x'"},
           {"mov a, %tid.q;", 4, "found '.q'"},
           {"bra (L);", 4, "expected a number, found 'L'"},
           {"call (a, f;", 4, "expected ')' or ',' in the list of a call, found ';'"},
       }) {
    expect_error(each, ".version 8.7\n.target sm_90a\n.entry k() {\n", "\n}\n");
  }
}

TEST(PtxParserErrors, OfNumbersAndCharacters) {
  for (const Case& each : std::vector<Case>{
           {"mov a, 0f3f80;", 4, "'0f3f80': 0f must be followed by exactly 8 hexadecimal digits"},
           {"mov a, 0f3F8000001;", 4, "exactly 8 hexadecimal digits"},
           {"mov a, 0d3F800000;", 4, "0d must be followed by exactly 16 hexadecimal digits"},
           {"mov a, 0x;", 4, "'0x': a number without digits"},
           {"mov a, 0b;", 4, "'0b': a number without digits"},
           {"mov a, 0b12;", 4, "digits that its base does not have"},
           {"mov a, 08;", 4, "digits that its base does not have"},
           {"mov a, 12abc;", 4, "'12abc': not a number"},
           {"mov a, 12u;", 4, "'12u': not a number"},
           {"mov a, 0x1_0;", 4, "'0x1_0': not a number"},
           {"mov a, 18446744073709551616;", 4, "not a whole number of 64 bits"},
           {"mov a, 1e400;", 4, "beyond the range of double precision"},
           {"mov a, 1e;", 4, "expected a form such as 1.5 or 2e-3"},
           {"mov a, 1.5f;", 4, "expected a form such as 1.5 or 2e-3"},
           {"mov a, \"b;\n\"", 4, "a string that is not closed on its line"},
           {"ret; /* a\n\nb", 4, "a comment '/*' that no '*/' ends"},
           {"#line 4", 4, "preprocessor lines ('#')"},
           {"mov a, `;", 4, "the character '`' has no meaning in PTX"},
           {std::string("mov a, \0;", 9), 4, "the character '\\x00' has no meaning in PTX"},
           {"mov a, \xc3\xa4;", 4, "the character '\\xc3' has no meaning in PTX"},
           {"mov a b" + std::string(500, 'b') + ";", 4, "found '" + std::string(48, 'b') + "…'"},
       }) {
    expect_error(each, ".version 8.7\n.target sm_90a\n.entry k() {\n", "\n}\n");
  }
}

// Twice the text may take twice the time, not four times; a generous bound on a text that is large for PTX.
TEST(PtxParserErrors, LongTextsTakeTimeInProportion) {
  const std::string head = ".version 8.7\n.target sm_90a\n.entry k() {\n";
  std::vector<std::string> texts(5, head);
  for (int i = 0; i < 20000; ++i) {
    const std::string number = std::to_string(i);
    texts[0] += "{ .reg .b32 a; L: add.u32 a, a, " + number + "; bra L; }\n";
    texts[1] += ".reg .b32 r" + number + "_<4>; L" + number + ": bra L" + number + ";\n";
    texts[2] += "mov.u32 a, {";
    texts[3] += "mov.u32 a, 1+2*3-4; // " + number + "\n";
    texts[4] += "@%p1 /*";
  }
  const std::clock_t begin = std::clock();  // of this process: others may run, too
  for (const std::string& text : texts) {
    try {
      parse(text + "}");
    } catch (const PtxError&) {
    }
  }
  EXPECT_LT(std::clock() - begin, 5 * CLOCKS_PER_SEC);
}

}  // namespace
}  // namespace jit::emulator::ptx
