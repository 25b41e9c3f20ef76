#include "generator/wgmma_source.h"

#include <vector>

#include <fmt/format.h>

namespace jit {
namespace {

// "%first, %first+1, …", as the operands of a vector.
std::string operands(int first, int count) {
  std::string text = "{";
  for (int i = 0; i < count; ++i) text += fmt::format("{}%{}", i == 0 ? "" : ", ", first + i);
  return text + "}";
}

// Items with commas between, broken into lines that begin with `indent`.
std::string lines(const std::vector<std::string>& items, std::string_view indent, std::size_t per_line) {
  std::string text;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i % per_line == 0) text += i == 0 ? "" : fmt::format("\n{}", indent);
    text += items[i] + (i + 1 == items.size() ? "" : i % per_line + 1 == per_line ? "," : ", ");
  }
  return text;
}

}  // namespace

std::string wgmma_function(std::string_view name, std::string_view doc, const WgmmaInstruction& instruction) {
  const int accumulators = instruction.n / 2;
  const bool registers = instruction.a_in_registers;
  const std::string type(instruction.dtype == DType::bf16 ? "bf16" : "f16");
  std::vector<std::string> outputs;
  for (int i = 0; i < accumulators; ++i) outputs.push_back(fmt::format("\"+f\"(d[{}][{}])", i / 4, i % 4));

  const int a = accumulators;
  const int b = a + (registers ? 4 : 1);
  std::string text = fmt::format("  // {}\n", doc);
  text += fmt::format(
      "  static __device__ __forceinline__ void {}(float (&d)[{}][4], {}, unsigned long long b{}) {{\n", name,
      accumulators / 4, registers ? "const unsigned (&a)[4]" : "unsigned long long a",
      registers ? "" : ", bool accumulate");
  text += "    asm volatile(\n";
  if (!registers) text += fmt::format("        \"{{.reg .pred p; setp.ne.b32 p, %{}, 0;\\n\"\n", b + 1);
  text += fmt::format("        \"wgmma.mma_async.sync.aligned.m64n{}k16.f32.{}.{} \"\n", instruction.n, type,
                      type);
  text += fmt::format("        \"{}, \"\n", operands(0, accumulators));
  text += registers
              ? fmt::format("        \"{}, %{}, 1, 1, 1, {};\"\n", operands(a, 4), b,
                            int{instruction.b_along_rows})
              : fmt::format("        \"%{}, %{}, p, 1, 1, 0, {};}}\"\n", a, b, int{instruction.b_along_rows});
  text += fmt::format("        : {}\n", lines(outputs, "          ", 8));
  text += registers ? "        : \"r\"(a[0]), \"r\"(a[1]), \"r\"(a[2]), \"r\"(a[3]), \"l\"(b));\n"
                    : "        : \"l\"(a), \"l\"(b), \"r\"(static_cast<int>(accumulate)));\n";
  return text + "  }\n";
}

}  // namespace jit
