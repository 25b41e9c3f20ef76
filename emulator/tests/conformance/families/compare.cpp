// Comparisons, selections and predicate logic (PTX ISA, "Comparison and Selection Instructions").
#include <string>

#include "micro_kernels/scalar.h"
#include "tests/conformance/families/families.h"

namespace jit::conformance {
namespace {

struct Kind {
  std::string type;
  char letter;
  std::vector<const char*> comparisons;
};

std::vector<Kind> kinds() {
  const std::vector<const char*> is_signed = {"eq", "ne", "lt", "le", "gt", "ge"};
  const std::vector<const char*> is_unsigned = {"eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs"};
  const std::vector<const char*> is_bits = {"eq", "ne"};
  const std::vector<const char*> real = {"eq",  "ne",  "lt",  "le",  "gt",  "ge",  "equ",
                                         "neu", "ltu", "leu", "gtu", "geu", "num", "nan"};
  return {{"s16", 's', is_signed}, {"u16", 's', is_unsigned}, {"b16", 's', is_bits},
          {"s32", 'i', is_signed}, {"u32", 'i', is_unsigned}, {"b32", 'i', is_bits},
          {"s64", 'l', is_signed}, {"u64", 'l', is_unsigned}, {"b64", 'l', is_bits},
          {"f32", 'f', real},      {"ftz.f32", 'f', real},    {"f64", 'd', real},
          {"f16", 'h', real},      {"ftz.f16", 'h', real}};
}

// Both results of a packed comparison, and of one that is combined with a predicate.
const Scalar packed[] = {
    {"setp.lt.f16x2", "iHH",
     "setp.lt.f16x2 %q0|%q1, $1, $2;\n  selp.b32 %x0, 1, 0, %q0;\n  selp.b32 %x1, 2, 0, %q1;\n"
     "  or.b32 $0, %x0, %x1;"},
    {"setp.neu.ftz.f16x2", "iHH",
     "setp.neu.ftz.f16x2 %q0|%q1, $1, $2;\n  selp.b32 %x0, 1, 0, %q0;\n"
     "  selp.b32 %x1, 2, 0, %q1;\n  or.b32 $0, %x0, %x1;"},
    {"set.ge.u32.f32", "iff"},
    {"set.ge.f32.f32", "fff"},
    {"set.lt.s32.s32", "iii"},
    {"set.eq.f32.u32", "fii"},
    {"set.nan.u32.f64", "idd"},
    {"set.gt.f16.f16", "hhh"},
    {"set.gt.f16x2.f16x2", "HHH"},
    {"set.lt.u32.f16", "ihh"},
    {"selp.b16", "ssss", "setp.lt.s16 %q0, $3, 0;\n  selp.b16 $0, $1, $2, %q0;"},
    {"selp.b32", "iiii", "setp.lt.s32 %q0, $3, 0;\n  selp.b32 $0, $1, $2, %q0;"},
    {"selp.b64", "llll", "setp.lt.s64 %q0, $3, 0;\n  selp.b64 $0, $1, $2, %q0;"},
    {"selp.f32", "ffff", "setp.lt.f32 %q0, $3, 0f00000000;\n  selp.f32 $0, $1, $2, %q0;"},
    {"selp.f64", "dddd", "setp.lt.f64 %q0, $3, 0d0000000000000000;\n  selp.f64 $0, $1, $2, %q0;"},
    {"slct.u32.s32", "iiii"},
    {"slct.f32.s32", "fffi"},
    {"slct.u64.f32", "lllf"},
    {"slct.ftz.f32.f32", "ffff"},
};

const Scalar sm_90_packed[] = {
    {"setp.lt.bf16", "pgg"},
    {"setp.geu.bf16", "pgg"},
    {"setp.gt.bf16x2", "iGG",
     "setp.gt.bf16x2 %q0|%q1, $1, $2;\n  selp.b32 %x0, 1, 0, %q0;\n  selp.b32 %x1, 2, 0, %q1;\n"
     "  or.b32 $0, %x0, %x1;"},
    {"set.le.bf16.bf16", "ggg"},
    {"set.le.bf16x2.bf16x2", "GGG"},
};

}  // namespace

std::vector<MicroKernel> compare_kernels() {
  std::vector<Scalar> table(std::begin(packed), std::end(packed));
  for (const Kind& kind : kinds()) {
    for (const char* comparison : kind.comparisons) {
      table.push_back({std::string("setp.") + comparison + "." + kind.type,
                       std::string("p") + kind.letter + kind.letter});
    }
  }
  const std::string both = "selp.b32 %x0, 1, 0, %q0;\n  selp.b32 %x1, 2, 0, %q1;\n  or.b32 $0, %x0, %x1;";
  for (const char* combination : {"and", "or", "xor"}) {
    const std::string op = combination;
    for (const char* negated : {"", "!"}) {
      table.push_back({"setp.lt." + op + ".s32" + (negated[0] != 0 ? ".not" : ""), "iiii",
                       "setp.lt.s32 %q2, $3, 0;\n  setp.lt." + op + ".s32 %q0|%q1, $1, $2, " + negated +
                           "%q2;\n  " + both});
      table.push_back({"setp.leu." + op + ".f32" + (negated[0] != 0 ? ".not" : ""), "ifff",
                       "setp.lt.f32 %q2, $3, 0f00000000;\n  setp.leu." + op + ".f32 %q0|%q1, $1, $2, " +
                           negated + "%q2;\n  " + both});
    }
    table.push_back({op + ".pred", "pii",
                     "setp.lt.s32 %q0, $1, 0;\n  setp.lt.s32 %q1, $2, 0;\n  " + op + ".pred $0, %q0, %q1;"});
  }
  table.push_back({"not.pred", "pi", "setp.lt.s32 %q0, $1, 0;\n  not.pred $0, %q0;"});
  table.push_back({"mov.pred", "pi", "setp.lt.s32 %q0, $1, 0;\n  mov.pred $0, %q0;"});
  table.push_back(
      {"xor.pred.literal", "pi", "setp.lt.s32 %q0, $1, 0;\n  mov.pred %q1, 1;\n  xor.pred $0, %q0, %q1;"});

  std::vector<MicroKernel> kernels;
  append(kernels, table, sm_80);
  append(kernels, sm_90_packed, sm_90a);
  return kernels;
}

}  // namespace jit::conformance
