// f32 and f64 (PTX ISA, "Floating-Point Instructions"). The approximations may differ from silicon by what
// the ISA allows them as errors.
#include <string>

#include <fmt/format.h>

#include "micro_kernels/scalar.h"
#include "tests/conformance/families/families.h"

namespace jit::conformance {
namespace {

void append_rounded(std::vector<Scalar>& table) {
  for (const char* rounding : {"", ".rn", ".rz", ".rm", ".rp"}) {
    const bool is_default = rounding[0] == 0;
    for (const char* flush : {"", ".ftz"}) {
      const std::string f32 = std::string(rounding) + flush + ".f32";
      for (const char* op : {"add", "sub", "mul"}) {
        table.push_back({op + f32, "fff"});
        table.push_back({op + std::string(rounding) + flush + ".sat.f32", "fff"});
      }
      if (is_default) continue;
      table.push_back({"fma" + f32, "ffff"});
      table.push_back({"fma" + std::string(rounding) + flush + ".sat.f32", "ffff"});
      table.push_back({"div" + f32, "fff"});
      table.push_back({"rcp" + f32, "ff"});
      table.push_back({"sqrt" + f32, "ff"});
    }
    const std::string f64 = std::string(rounding) + ".f64";
    for (const char* op : {"add", "sub", "mul"}) table.push_back({op + f64, "ddd"});
    if (is_default) continue;
    table.push_back({"fma" + f64, "dddd"});
    table.push_back({"div" + f64, "ddd"});
    table.push_back({"rcp" + f64, "dd"});
    table.push_back({"sqrt" + f64, "dd"});
  }
  table.push_back({"mad.rn.f32", "ffff"});
  table.push_back({"mad.rn.ftz.f32", "ffff"});
}

void append_exact(std::vector<Scalar>& table) {
  for (const char* flush : {"", ".ftz"}) {
    const std::string f32 = std::string(flush) + ".f32";
    for (const char* op : {"abs", "neg"}) table.push_back({op + f32, "ff"});
    for (const char* op : {"min", "max"}) {
      table.push_back({op + f32, "fff"});
      table.push_back({op + std::string(flush) + ".NaN.f32", "fff"});
    }
  }
  for (const char* op : {"abs", "neg"}) table.push_back({std::string(op) + ".f64", "dd"});
  for (const char* op : {"min", "max"}) table.push_back({std::string(op) + ".f64", "ddd"});
  table.push_back({"copysign.f32", "fff"});
  table.push_back({"copysign.f64", "ddd"});
  const Scalar literals[] = {
      {"add.f32.literal", "ff", "add.f32 $0, $1, 0f3DCCCCCD;"},
      {"fma.rn.f32.literal", "ff", "fma.rn.f32 $0, $1, 0fBFB8AA3B, 0f7F800000;"},
      {"add.f64.literal", "dd", "add.f64 $0, $1, 0d3FB999999999999A;"},
      {"mul.f32.decimal", "ff", "mul.f32 $0, $1, 0.1;"},
  };
  table.insert(table.end(), std::begin(literals), std::end(literals));
}

void append_approximate(std::vector<Scalar>& table) {
  const auto row = [&](std::string name, double low, double high, Comparison comparison) {
    const bool two = name.starts_with("div");
    table.push_back({std::move(name), two ? "fff" : "ff", "", low, high, comparison});
  };
  for (const char* flush : {"", ".ftz"}) {
    const std::string f32 = std::string(".approx") + flush + ".f32";
    row("ex2" + f32, -150, 130, {.ulps = 2});
    row("lg2" + f32, 0.5, 2, {.ulps = 2, .absolute = 0x1p-22});
    row("rcp" + f32, -100, 100, {.ulps = 1});
    row("rsqrt" + f32, 0, 100, {.ulps = 2});
    row("sqrt" + f32, 0, 100, {.ulps = 2});
    row("div" + f32, -100, 100, {.ulps = 2});
    row("div.full" + std::string(flush) + ".f32", -100, 100, {.ulps = 2});
    row("sin" + f32, -3.14159, 3.14159, {.absolute = 0x1p-20});
    row("cos" + f32, -3.14159, 3.14159, {.absolute = 0x1p-20});
  }
  row("tanh.approx.f32", -6, 6, {.ulps = 1});
  // Their results have 20 bits behind the point.
  table.push_back({"rcp.approx.ftz.f64", "dd", "", -100, 100, {.ulps = 0x1p32, .any_nan = true}});
  table.push_back({"rsqrt.approx.ftz.f64", "dd", "", 0, 100, {.ulps = 0x1p32, .any_nan = true}});
}

}  // namespace

std::vector<MicroKernel> floating_kernels() {
  std::vector<Scalar> table;
  append_rounded(table);
  append_exact(table);
  append_approximate(table);
  for (const char* kind : {"finite", "infinite", "number", "notanumber", "normal", "subnormal"}) {
    table.push_back({std::string("testp.") + kind + ".f32", "pf"});
    table.push_back({std::string("testp.") + kind + ".f64", "pd"});
  }
  std::vector<MicroKernel> kernels;
  append(kernels, table, sm_80);
  std::vector<Scalar> new_in_86;
  for (const char* op : {"min", "max"}) {
    for (const char* modifier : {"", ".ftz", ".NaN", ".ftz.NaN"}) {
      new_in_86.push_back({std::string(op) + modifier + ".xorsign.abs.f32", "fff"});
    }
  }
  append(kernels, new_in_86, sm_90a);
  // Many more arguments for the approximations that attention lives on.
  for (const char* name : {"ex2.approx.ftz.f32", "ex2.approx.f32", "lg2.approx.f32", "rcp.approx.ftz.f32",
                           "tanh.approx.f32", "rsqrt.approx.f32", "sqrt.approx.f32"}) {
    for (const auto& [low, high] : {std::pair{-8.0, 8.0}, std::pair{0.0, 1e-3}, std::pair{1.0, 2.0}}) {
      Scalar scalar{name, "ff"};
      for (const Scalar& row : table) {
        if (row.name == name) scalar = row;
      }
      MicroKernel kernel = scalar_kernel(scalar, sm_80);
      kernel.name += fmt::format("/{}..{}", low, high);
      kernel.inputs[0].pattern = Pattern::range;
      kernel.inputs[0].low = low;
      kernel.inputs[0].high = high;
      kernels.push_back(std::move(kernel));
    }
  }
  return kernels;
}

}  // namespace jit::conformance
