// Arithmetic on pairs of floats, three-operand min and max, conversions for softmax, and elect.sync.
#include <string>

#include "micro_kernels/blackwell.h"
#include "micro_kernels/scalar.h"

namespace jit::conformance {

std::vector<MicroKernel> packed_instructions(const std::string& target) {
  std::vector<Scalar> table;
  for (const char* const rounding : {".rn", ".rz", ".rm", ".rp"}) {
    for (const char* const subnormals : {"", ".ftz"}) {
      const std::string modifiers = std::string(rounding) + subnormals + ".f32x2";
      table.push_back({"add" + modifiers, "FFF"});
      table.push_back({"mul" + modifiers, "FFF"});
      table.push_back({"fma" + modifiers, "FFFF"});
    }
  }
  for (const char* const operation : {"max", "min"}) {
    for (const char* const modifiers : {".f32", ".ftz.f32", ".NaN.f32", ".abs.f32"}) {
      const std::string name = std::string(operation) + modifiers;
      table.push_back({name + " of three", "ffff", name + " $0, $1, $2, $3;"});
    }
  }
  const Scalar others[] = {
      {"ex2.approx.f32", "ff", "", -140, 130},
      {"ex2.approx.ftz.f32", "ff", "", -140, 130},
      {"ex2.approx.f16x2", "HH"},
      {"ex2.approx.ftz.bf16x2", "GG"},
      {"cvt.rn.bf16x2.f32", "Gff"},
      {"cvt.rn.f16x2.f32", "Hff"},
      {"cvt.rn.relu.bf16x2.f32", "Gff"},
      {"cvt.rn.satfinite.e4m3x2.f32", "xff", "", -500, 500},
      {"cvt.rn.satfinite.e5m2x2.f32", "Xff", "", -60000, 60000},
      {"cvt.rn.satfinite.e4m3x2.f16x2", "xH"},
      {"cvt.rn.f16x2.e4m3x2", "Hx"},
      {"cvt.rn.f16x2.e5m2x2", "HX"},
      // Elects twice, since the result must repeat, and once among the odd lanes.
      {"elect.sync", "ii",
       "elect.sync $0|%q0, 0xffffffff;\nelect.sync %x0|%q1, 0xffffffff;\nselp.b32 %x1, 256, 0, %q0;\n"
       "selp.b32 %x2, 512, 0, %q1;\nadd.u32 $0, $0, %x1;\nadd.u32 $0, $0, %x2;\nshl.b32 %x0, %x0, 16;\n"
       "add.u32 $0, $0, %x0;"},
      {"elect.sync of odd lanes", "ii",
       "and.b32 %x0, %lane, 1;\nsetp.ne.u32 %q1, %x0, 0;\nmov.b32 $0, 0;\nsetp.ne.u32 %q0, %x0, %x0;\n"
       "@!%q1 bra past;\nelect.sync $0|%q0, 0xaaaaaaaa;\npast:\nselp.b32 %x1, 256, 0, %q0;\n"
       "add.u32 $0, $0, %x1;"},
  };
  table.insert(table.end(), std::begin(others), std::end(others));
  std::vector<MicroKernel> kernels;
  append(kernels, table, target, blackwell_ptx);
  return kernels;
}

}  // namespace jit::conformance
