#include "micro_kernels/scalar.h"

#include <stdexcept>

#include <fmt/format.h>

namespace jit::conformance {
namespace {

struct Letter {
  Element element;
  int count;         ///< elements in the operand
  const char* bits;  ///< of its register
  const char* memory;
};

Letter letter(char name) {
  switch (name) {
    case 'h':
      return {Element::f16, 1, "b16", "b16"};
    case 'g':
      return {Element::bf16, 1, "b16", "b16"};
    case 'H':
      return {Element::f16, 2, "b32", "b32"};
    case 'G':
      return {Element::bf16, 2, "b32", "b32"};
    case 'f':
      return {Element::f32, 1, "b32", "b32"};
    case 'F':
      return {Element::f32, 2, "b64", "b64"};
    case 't':
      return {Element::tf32, 1, "b32", "b32"};
    case 'd':
      return {Element::f64, 1, "b64", "b64"};
    case 'b':
      return {Element::i8, 1, "b16", "u8"};
    case 's':
      return {Element::i16, 1, "b16", "b16"};
    case 'i':
      return {Element::i32, 1, "b32", "b32"};
    case 'l':
      return {Element::i64, 1, "b64", "b64"};
    case 'e':
      return {Element::e4m3, 1, "b16", "u8"};
    case 'E':
      return {Element::e5m2, 1, "b16", "u8"};
    case 'x':
      return {Element::e4m3, 2, "b16", "b16"};
    case 'X':
      return {Element::e5m2, 2, "b16", "b16"};
    case 'p':
      return {Element::i8, 1, "pred", "u8"};
    default:
      throw std::logic_error(fmt::format("no operand is written {}", name));
  }
}

}  // namespace

MicroKernel scalar_kernel(const Scalar& scalar, const std::string& target, const char* version) {
  // Threads for all pairs of edge values, and more with other operands.
  const bool is_unary = scalar.signature.size() == 2;
  const unsigned thread_count = is_unary ? 192 : 352;
  MicroKernel kernel;
  kernel.name = scalar.name;
  kernel.block = {thread_count, 1, 1};
  kernel.comparison = scalar.comparison;
  const Letter result = letter(scalar.signature.at(0));
  kernel.comparison.element = result.element;
  kernel.output = {.element = result.element,
                   .pattern = Pattern::filler,
                   .count = thread_count * static_cast<std::size_t>(result.count)};

  std::string body =
      "  .reg .pred %q<8>;\n  .reg .b32 %x<8>;\n  .reg .b64 %y<8>;\n  .reg .b16 %z<8>;\n  .reg .b64 %at;\n";
  std::string instructions = scalar.body;
  if (instructions.empty()) {
    instructions = scalar.name + " $0";
    for (std::size_t i = 1; i < scalar.signature.size(); ++i) instructions += fmt::format(", ${}", i);
    instructions += ";";
  }
  for (std::size_t i = 0; i < scalar.signature.size(); ++i) {
    const Letter operand = letter(scalar.signature[i]);
    body += fmt::format("  .reg .{} %a{};\n", operand.bits, i);
    instructions = replace_all(instructions, fmt::format("${}", i), fmt::format("%a{}", i));
    if (i == 0) continue;
    kernel.inputs.push_back({.element = operand.element,
                             .pattern = Pattern::edges,
                             .count = thread_count * static_cast<std::size_t>(operand.count),
                             .operand = is_unary ? -1 : static_cast<int>(i) - 1,
                             .low = scalar.low,
                             .high = scalar.high});
    body += fmt::format("  mad.wide.u32 %at, %thread, {}, %in{};\n  ld.global.{} %a{}, [%at];\n",
                        bytes_of(operand.element) * static_cast<std::size_t>(operand.count), i - 1,
                        operand.memory, i);
  }
  body += "  " + instructions + "\n";
  body += fmt::format("  mad.wide.u32 %at, %thread, {}, %out;\n",
                      bytes_of(result.element) * static_cast<std::size_t>(result.count));
  if (std::string_view(result.bits) == "pred") {
    body += "  selp.b16 %z7, 1, 0, %a0;\n  st.global.u8 [%at], %z7;\n";
  } else {
    body += fmt::format("  st.global.{} [%at], %a0;\n", result.memory);
  }
  return with_text(std::move(kernel), {.target = target, .body = body, .version = version});
}

void append(std::vector<MicroKernel>& kernels, std::span<const Scalar> table, const std::string& target,
            const char* version) {
  for (const Scalar& scalar : table) kernels.push_back(scalar_kernel(scalar, target, version));
}

}  // namespace jit::conformance
