// f16, bf16 and their pairs (PTX ISA, "Half Precision Floating-Point Instructions").
#include <string>

#include "micro_kernels/scalar.h"
#include "tests/conformance/families/families.h"

namespace jit::conformance {
namespace {

struct HalfType {
  const char* name;
  char letter;
  bool is_bf16;
};

constexpr HalfType types[] = {
    {".f16", 'h', false}, {".f16x2", 'H', false}, {".bf16", 'g', true}, {".bf16x2", 'G', true}};

std::string operands(char letter, int count) {
  return std::string(static_cast<std::size_t>(count + 1), letter);
}

}  // namespace

std::vector<MicroKernel> half_kernels() {
  std::vector<Scalar> old;
  std::vector<Scalar> new_in_90;
  for (const HalfType& type : types) {
    const std::string two = operands(type.letter, 2);
    const std::string three = operands(type.letter, 3);
    const std::string one = operands(type.letter, 1);
    const std::string t = type.name;
    std::vector<Scalar>& arithmetic = type.is_bf16 ? new_in_90 : old;
    for (const char* op : {"add", "sub", "mul"}) {
      arithmetic.push_back({op + t, two});
      arithmetic.push_back({op + (".rn" + t), two});
      if (type.is_bf16) continue;
      for (const char* modifier : {".ftz", ".sat", ".ftz.sat", ".rn.ftz.sat"}) {
        arithmetic.push_back({std::string(op) + modifier + t, two});
      }
    }
    old.push_back({"fma.rn" + t, three});
    old.push_back({"fma.rn.relu" + t, three});
    if (!type.is_bf16) {
      for (const char* modifier : {".ftz", ".sat", ".ftz.sat", ".ftz.relu"}) {
        old.push_back({std::string("fma.rn") + modifier + t, three});
      }
    }
    for (const char* op : {"min", "max"}) {
      for (const char* modifier : {"", ".NaN"}) {
        old.push_back({std::string(op) + modifier + t, two});
        new_in_90.push_back({std::string(op) + modifier + ".xorsign.abs" + t, two});
        if (type.is_bf16) continue;
        old.push_back({std::string(op) + ".ftz" + modifier + t, two});
        new_in_90.push_back({std::string(op) + ".ftz" + modifier + ".xorsign.abs" + t, two});
      }
    }
    old.push_back({"abs" + t, one});
    old.push_back({"neg" + t, one});
    if (!type.is_bf16) {
      old.push_back({"abs.ftz" + t, one});
      old.push_back({"neg.ftz" + t, one});
      old.push_back({"ex2.approx" + t, one, "", -26, 17, {.ulps = 1}});
      old.push_back({"tanh.approx" + t, one, "", -6, 6, {.ulps = 1, .absolute = 0x1p-10}});
    } else {
      new_in_90.push_back({"ex2.approx.ftz" + t, one, "", -150, 130, {.ulps = 1}});
      new_in_90.push_back({"tanh.approx" + t, one, "", -6, 6, {.ulps = 1, .absolute = 0x1p-8}});
    }
    new_in_90.push_back({"fma.rn.oob" + t, three});
    new_in_90.push_back({"fma.rn.oob.relu" + t, three});
  }

  std::vector<MicroKernel> kernels;
  append(kernels, old, sm_80);
  append(kernels, new_in_90, sm_90a);
  return kernels;
}

}  // namespace jit::conformance
