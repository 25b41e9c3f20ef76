// Conversions (PTX ISA, "cvt", "cvt.pack").
#include <string>

#include "micro_kernels/scalar.h"
#include "tests/conformance/families/families.h"

namespace jit::conformance {
namespace {

struct NumberType {
  std::string name;
  char letter;
  int bits;
};

const NumberType integers[] = {{"u8", 'b', 8},   {"s8", 'b', 8},   {"u16", 's', 16}, {"s16", 's', 16},
                               {"u32", 'i', 32}, {"s32", 'i', 32}, {"u64", 'l', 64}, {"s64", 'l', 64}};
const NumberType floats[] = {{"f16", 'h', 16}, {"f32", 'f', 32}, {"f64", 'd', 64}};

std::string signature(const NumberType& to, const NumberType& from) { return {to.letter, from.letter}; }

void append_integers(std::vector<Scalar>& table) {
  for (const NumberType& to : integers) {
    for (const NumberType& from : integers) {
      const std::string types = "." + to.name + "." + from.name;
      if (to.name != from.name) table.push_back({"cvt" + types, signature(to, from)});
      if (to.bits <= from.bits && to.name != from.name)
        table.push_back({"cvt.sat" + types, signature(to, from)});
    }
  }
}

void append_mixed(std::vector<Scalar>& table) {
  for (const NumberType& real : floats) {
    for (const NumberType& integer : integers) {
      // Where the limits of the integer lie, as far as they fit in.
      const double limit = integer.bits == 8 ? 300 : integer.bits == 16 ? 70000 : 5e9;
      for (const char* rounding : {".rni", ".rzi", ".rmi", ".rpi"}) {
        table.push_back({std::string("cvt") + rounding + "." + integer.name + "." + real.name,
                         signature(integer, real), "", real.bits == 16 ? -300 : -limit,
                         real.bits == 16 ? 300 : limit});
      }
      for (const char* rounding : {".rn", ".rz", ".rm", ".rp"}) {
        table.push_back(
            {std::string("cvt") + rounding + "." + real.name + "." + integer.name, signature(real, integer)});
      }
    }
  }
  for (const char* type : {"u32", "s32", "s8"}) {
    table.push_back({std::string("cvt.rzi.ftz.") + type + ".f32", std::string(type) == "s8" ? "bf" : "if", "",
                     -300, 300});
    table.push_back({std::string("cvt.rni.sat.") + type + ".f32", std::string(type) == "s8" ? "bf" : "if", "",
                     -300, 300});
  }
  table.push_back({"cvt.rn.sat.f32.s32", "fi"});
}

void append_floats(std::vector<Scalar>& table) {
  const Scalar rows[] = {
      {"cvt.f32.f16", "fh"},
      {"cvt.ftz.f32.f16", "fh"},
      {"cvt.sat.f32.f16", "fh"},
      {"cvt.f64.f16", "dh"},
      {"cvt.f64.f32", "df"},
      {"cvt.ftz.f64.f32", "df"},
      {"cvt.rn.f16.f64", "hd"},
      {"cvt.rz.f16.f64", "hd"},
      {"cvt.rn.f16.f32", "hf"},
      {"cvt.rz.f16.f32", "hf"},
      {"cvt.rm.f16.f32", "hf"},
      {"cvt.rp.f16.f32", "hf"},
      {"cvt.rn.ftz.f16.f32", "hf"},
      {"cvt.rn.sat.f16.f32", "hf"},
      {"cvt.rn.relu.f16.f32", "hf"},
      {"cvt.rz.relu.f16.f32", "hf"},
      {"cvt.rn.f32.f64", "fd"},
      {"cvt.rz.f32.f64", "fd"},
      {"cvt.rm.f32.f64", "fd"},
      {"cvt.rp.f32.f64", "fd"},
      {"cvt.rn.ftz.f32.f64", "fd"},
      {"cvt.sat.f32.f32", "ff"},
      {"cvt.ftz.f32.f32", "ff"},
      {"cvt.ftz.sat.f32.f32", "ff"},
      {"cvt.rni.f32.f32", "ff"},
      {"cvt.rzi.f32.f32", "ff"},
      {"cvt.rmi.f32.f32", "ff"},
      {"cvt.rpi.f32.f32", "ff"},
      {"cvt.rni.ftz.f32.f32", "ff"},
      {"cvt.rzi.f64.f64", "dd"},
      {"cvt.rmi.f64.f64", "dd"},
      {"cvt.rni.f64.f64", "dd"},
      {"cvt.rpi.f64.f64", "dd"},
      {"cvt.rni.f16.f16", "hh"},
      {"cvt.rzi.f16.f16", "hh"},
      {"cvt.rmi.f16.f16", "hh"},
      {"cvt.rpi.f16.f16", "hh"},
      {"cvt.sat.f16.f16", "hh"},
      {"cvt.rn.bf16.f32", "gf"},
      {"cvt.rz.bf16.f32", "gf"},
      {"cvt.rn.relu.bf16.f32", "gf"},
      {"cvt.rz.relu.bf16.f32", "gf"},
      {"cvt.rn.f16x2.f32", "Hff"},
      {"cvt.rz.f16x2.f32", "Hff"},
      {"cvt.rn.relu.f16x2.f32", "Hff"},
      {"cvt.rz.relu.f16x2.f32", "Hff"},
      {"cvt.rn.bf16x2.f32", "Gff"},
      {"cvt.rz.bf16x2.f32", "Gff"},
      {"cvt.rn.relu.bf16x2.f32", "Gff"},
      {"cvt.rz.relu.bf16x2.f32", "Gff"},
      {"cvt.rna.tf32.f32", "tf"},
      {"cvt.pack.sat.s16.s32", "iii"},
      {"cvt.pack.sat.u16.s32", "iii"},
      {"cvt.pack.sat.s8.s32.b32", "iiii"},
      {"cvt.pack.sat.u8.s32.b32", "iiii"},
  };
  table.insert(table.end(), std::begin(rows), std::end(rows));
}

const Scalar new_in_90[] = {
    {"cvt.f32.bf16", "fg"},
    {"cvt.rn.bf16.f16", "gh"},
    {"cvt.rn.f16.bf16", "hg"},
    {"cvt.rz.f16.bf16", "hg"},
    {"cvt.rn.bf16.f64", "gd"},
    {"cvt.f64.bf16", "dg"},
    {"cvt.rn.bf16.s32", "gi"},
    {"cvt.rn.bf16.u64", "gl"},
    {"cvt.rz.bf16.u32", "gi"},
    {"cvt.rzi.s32.bf16", "ig"},
    {"cvt.rni.u16.bf16", "sg"},
    {"cvt.rni.bf16.bf16", "gg"},
    {"cvt.rzi.bf16.bf16", "gg"},
    {"cvt.rn.tf32.f32", "tf"},
    {"cvt.rz.tf32.f32", "tf"},
    {"cvt.rn.relu.tf32.f32", "tf"},
    {"cvt.rz.relu.tf32.f32", "tf"},
    {"cvt.rn.satfinite.e4m3x2.f32", "xff", "", -500, 500},
    {"cvt.rn.satfinite.e5m2x2.f32", "Xff", "", -60000, 60000},
    {"cvt.rn.satfinite.relu.e4m3x2.f32", "xff", "", -500, 500},
    {"cvt.rn.satfinite.relu.e5m2x2.f32", "Xff", "", -1, 1},
    {"cvt.rn.satfinite.e4m3x2.f32.small", "xff", "cvt.rn.satfinite.e4m3x2.f32 $0, $1, $2;", -0.02, 0.02},
    {"cvt.rn.satfinite.e5m2x2.f32.small", "Xff", "cvt.rn.satfinite.e5m2x2.f32 $0, $1, $2;", -0.0002, 0.0002},
    {"cvt.rn.satfinite.e4m3x2.f16x2", "xH"},
    {"cvt.rn.satfinite.e5m2x2.f16x2", "XH"},
    {"cvt.rn.satfinite.relu.e4m3x2.f16x2", "xH"},
    {"cvt.rn.f16x2.e4m3x2", "Hx"},
    {"cvt.rn.f16x2.e5m2x2", "HX"},
    {"cvt.rn.relu.f16x2.e4m3x2", "Hx"},
    {"cvt.rn.relu.f16x2.e5m2x2", "HX"},
};

}  // namespace

std::vector<MicroKernel> convert_kernels() {
  std::vector<Scalar> table;
  append_integers(table);
  append_mixed(table);
  append_floats(table);
  std::vector<MicroKernel> kernels;
  append(kernels, table, sm_80);
  append(kernels, new_in_90, sm_90a);
  return kernels;
}

}  // namespace jit::conformance
