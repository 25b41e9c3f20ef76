// Integer arithmetic, logic, shifts and bit fields (PTX ISA, "Integer Arithmetic Instructions",
// "Extended-Precision Integer Arithmetic Instructions", "Logic and Shift Instructions").
#include <string>

#include "micro_kernels/scalar.h"
#include "tests/conformance/families/families.h"

namespace jit::conformance {
namespace {

struct IntegerType {
  const char* name;
  char letter;
  char wide;  ///< letter of twice the width; 0: none
  bool is_signed;
};

constexpr IntegerType types[] = {{"u16", 's', 'i', false}, {"s16", 's', 'i', true}, {"u32", 'i', 'l', false},
                                 {"s32", 'i', 'l', true},  {"u64", 'l', 0, false},  {"s64", 'l', 0, true}};

std::string operands(char letter, int count) {
  return std::string(static_cast<std::size_t>(count + 1), letter);
}

void append_arithmetic(std::vector<Scalar>& table) {
  for (const IntegerType& type : types) {
    const std::string t = std::string(".") + type.name;
    for (const char* op : {"add", "sub", "mul.lo", "mul.hi", "min", "max"}) {
      table.push_back({op + t, operands(type.letter, 2)});
    }
    table.push_back({"mad.lo" + t, operands(type.letter, 3)});
    table.push_back({"mad.hi" + t, operands(type.letter, 3)});
    // The quotient by zero is not defined.
    const std::string bits = type.letter == 's' ? "16" : type.letter == 'i' ? "32" : "64";
    const std::string divisor = "setp.eq.b" + bits + " %q0, $2, 0;\n  @%q0 mov.b" + bits + " $2, 7;\n  ";
    table.push_back({"div" + t, operands(type.letter, 2), divisor + "div" + t + " $0, $1, $2;"});
    table.push_back({"rem" + t, operands(type.letter, 2), divisor + "rem" + t + " $0, $1, $2;"});
    if (type.wide != 0) {
      const std::string wide(1, type.wide);
      table.push_back({"mul.wide" + t, wide + type.letter + type.letter});
      table.push_back({"mad.wide" + t, wide + type.letter + type.letter + wide});
    }
    if (type.is_signed) {
      table.push_back({"abs" + t, operands(type.letter, 1)});
      table.push_back({"neg" + t, operands(type.letter, 1)});
    }
    table.push_back({"shr" + t, operands(type.letter, 1) + "i"});
  }
  for (const char* t : {".u32", ".s32"}) {
    for (const char* op : {"mul24.lo", "mul24.hi", "sad"}) {
      const bool three = std::string_view(op) == "sad";
      table.push_back({std::string(op) + t, operands('i', three ? 3 : 2)});
    }
    table.push_back({std::string("mad24.lo") + t, "iiii"});
  }
  table.push_back({"add.sat.s32", "iii"});
  table.push_back({"sub.sat.s32", "iii"});
  table.push_back({"mad.hi.sat.s32", "iiii"});
}

void append_carries(std::vector<Scalar>& table) {
  const Scalar rows[] = {
      {"add.cc.u32", "liiii", "add.cc.u32 %x0, $1, $2;\n  addc.u32 %x1, $3, $4;\n  mov.b64 $0, {%x0, %x1};"},
      {"addc.cc.u32", "liii",
       "add.cc.u32 %x0, $1, $2;\n  addc.cc.u32 %x0, $2, $3;\n  addc.u32 %x1, 0, 0;\n  mov.b64 $0, {%x0, "
       "%x1};"},
      {"sub.cc.u32", "liiii", "sub.cc.u32 %x0, $1, $2;\n  subc.u32 %x1, $3, $4;\n  mov.b64 $0, {%x0, %x1};"},
      {"subc.cc.u32", "liii",
       "sub.cc.u32 %x0, $1, $2;\n  subc.cc.u32 %x0, $2, $3;\n  subc.u32 %x1, 0, 0;\n  mov.b64 $0, {%x0, "
       "%x1};"},
      {"mad.lo.cc.u32", "liii",
       "mad.lo.cc.u32 %x0, $1, $2, $3;\n  madc.hi.u32 %x1, $1, $2, 0;\n  mov.b64 $0, {%x0, %x1};"},
      {"mad.hi.cc.u32", "liii",
       "mad.hi.cc.u32 %x0, $1, $2, $3;\n  madc.lo.u32 %x1, $1, $2, 5;\n  mov.b64 $0, {%x0, %x1};"},
      {"add.cc.u64", "llll", "add.cc.u64 %y0, $1, $2;\n  addc.u64 $0, $3, 0;"},
  };
  table.insert(table.end(), std::begin(rows), std::end(rows));
}

void append_logic(std::vector<Scalar>& table) {
  struct Width {
    const char* name;
    char letter;
  };
  for (const Width& width : {Width{".b16", 's'}, Width{".b32", 'i'}, Width{".b64", 'l'}}) {
    for (const char* op : {"and", "or", "xor"})
      table.push_back({std::string(op) + width.name, operands(width.letter, 2)});
    for (const char* op : {"not", "cnot"})
      table.push_back({std::string(op) + width.name, operands(width.letter, 1)});
    table.push_back({std::string("shl") + width.name, operands(width.letter, 1) + "i"});
    table.push_back({std::string("shr") + width.name, operands(width.letter, 1) + "i"});
    if (width.letter == 's') continue;
    table.push_back({std::string("brev") + width.name, operands(width.letter, 1)});
    for (const char* op : {"popc", "clz"})
      table.push_back({std::string(op) + width.name, std::string("i") + width.letter});
    table.push_back({std::string("bfi") + width.name, operands(width.letter, 2) + "ii"});
  }
  for (const char* type : {".u32", ".s32", ".u64", ".s64"}) {
    const char letter = type[2] == '3' ? 'i' : 'l';
    table.push_back({std::string("bfe") + type, operands(letter, 1) + "ii"});
    table.push_back({std::string("bfind") + type, std::string("i") + letter});
    table.push_back({std::string("bfind.shiftamt") + type, std::string("i") + letter});
  }
  for (const char* lut : {"0x00", "0x01", "0x1b", "0x80", "0x96", "0xca", "0xe8", "0xf8", "0xff"}) {
    table.push_back(
        {std::string("lop3.b32.") + lut, "iiii", std::string("lop3.b32 $0, $1, $2, $3, ") + lut + ";"});
  }
  for (const char* op : {"shf.l.wrap", "shf.l.clamp", "shf.r.wrap", "shf.r.clamp"}) {
    table.push_back({std::string(op) + ".b32", "iiii"});
  }
  for (const char* mode : {"", ".f4e", ".b4e", ".rc8", ".ecl", ".ecr", ".rc16"}) {
    table.push_back({std::string("prmt.b32") + mode, "iiii"});
  }
  for (const char* mode : {".wrap", ".clamp"}) {
    table.push_back({std::string("bmsk") + mode + ".b32", "iii"});
    for (const char* type : {".u32", ".s32"}) table.push_back({std::string("szext") + mode + type, "iii"});
  }
  // A base beyond the mask's bits is not defined.
  table.push_back({"fns.b32", "iiii", "and.b32 %x0, $2, 31;\n  fns.b32 $0, $1, %x0, $3;"});
  for (const char* type : {".u32.u32", ".u32.s32", ".s32.u32", ".s32.s32"}) {
    table.push_back({std::string("dp4a") + type, "iiii"});
    table.push_back({std::string("dp2a.lo") + type, "iiii"});
    table.push_back({std::string("dp2a.hi") + type, "iiii"});
  }
}

// Literals as the compiler writes them.
void append_literals(std::vector<Scalar>& table) {
  const Scalar rows[] = {
      {"add.s32.literal", "ii", "add.s32 $0, $1, -2147483648;"},
      {"add.s64.literal", "ll", "add.s64 $0, $1, -4611686018427387905;"},
      {"mul.lo.s16.literal", "ss", "mul.lo.s16 $0, $1, -3;"},
      {"and.b32.literal", "ii", "and.b32 $0, $1, 0xFFFF0000U;"},
      {"shr.s32.literal", "ii", "shr.s32 $0, $1, 33;"},
      {"prmt.b32.literal", "iii", "prmt.b32 $0, $1, $2, 0x5410U;"},
      {"prmt.b32.signs", "iii", "prmt.b32 $0, $1, $2, 47292;"},
      {"bfe.u32.literal", "ii", "bfe.u32 $0, $1, 5, 9;"},
      {"bfi.b32.literal", "iii", "bfi.b32 $0, $1, $2, 16, 8;"},
  };
  table.insert(table.end(), std::begin(rows), std::end(rows));
}

}  // namespace

std::vector<MicroKernel> integer_kernels() {
  std::vector<Scalar> table;
  append_arithmetic(table);
  append_carries(table);
  append_logic(table);
  append_literals(table);
  std::vector<MicroKernel> kernels;
  append(kernels, table, sm_80);
  const Scalar new_in_90[] = {
      {"min.relu.s32", "iii"},   {"max.relu.s32", "iii"},   {"min.u16x2", "iii"}, {"max.s16x2", "iii"},
      {"min.relu.s16x2", "iii"}, {"max.relu.s16x2", "iii"}, {"add.u16x2", "iii"}, {"add.s16x2", "iii"},
      {"min.s16x2", "iii"},      {"max.u16x2", "iii"},
  };
  append(kernels, new_in_90, sm_90a);
  return kernels;
}

}  // namespace jit::conformance
