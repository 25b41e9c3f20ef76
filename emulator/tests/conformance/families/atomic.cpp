// Atomics and reductions (PTX ISA, "atom", "red").
#include <string>

#include <fmt/format.h>

#include "micro_kernels/kernel_text.h"
#include "tests/conformance/families/families.h"

namespace jit::conformance {
namespace {

constexpr unsigned all_pairs = 256;

struct AtomicType {
  const char* name;
  Element element;
  int count;              ///< elements
  const char* registers;  ///< bits
  std::vector<const char*> operations;
  const char* target;
};

const std::vector<AtomicType>& types() {
  static const std::vector<AtomicType> all = {
      {"u32", Element::i32, 1, "b32", {"add", "min", "max", "inc", "dec"}, sm_80},
      {"s32", Element::i32, 1, "b32", {"add", "min", "max"}, sm_80},
      {"u64", Element::i64, 1, "b64", {"add", "min", "max"}, sm_80},
      {"s64", Element::i64, 1, "b64", {"min", "max"}, sm_80},
      {"b32", Element::i32, 1, "b32", {"and", "or", "xor", "exch"}, sm_80},
      {"b64", Element::i64, 1, "b64", {"and", "or", "xor", "exch"}, sm_80},
      {"f32", Element::f32, 1, "b32", {"add"}, sm_80},
      {"f64", Element::f64, 1, "b64", {"add"}, sm_80},
      {"f16", Element::f16, 1, "b16", {"add.noftz"}, sm_80},
      {"f16x2", Element::f16, 2, "b32", {"add.noftz"}, sm_80},
      {"bf16", Element::bf16, 1, "b16", {"add.noftz"}, sm_90a},
      {"bf16x2", Element::bf16, 2, "b32", {"add.noftz"}, sm_90a},
  };
  return all;
}

int bits_of(const AtomicType& type) { return static_cast<int>(bytes_of(type.element)) * 8 * type.count; }

// Each thread works on its own place, whose old value is an edge like the operands: the output holds what was
// left there, and behind that what the instruction returned. `pick` is the space.
MicroKernel single(const AtomicType& type, const std::string& operation, const char* space, bool returns) {
  const int bytes = bits_of(type) / 8;
  const bool is_cas = operation == "cas";
  const bool shared = std::string_view(space).starts_with("shared");
  const unsigned threads = shared ? 64 : all_pairs;
  MicroKernel kernel;
  kernel.name = fmt::format("{}.{}.{}.{}", returns ? "atom" : "red", space, operation, type.name);
  kernel.block = {threads, 1, 1};
  for (int operand = 0; operand < 3; ++operand) {
    kernel.inputs.push_back({.element = type.element,
                             .pattern = Pattern::edges,
                             .count = threads * static_cast<std::size_t>(type.count),
                             .operand = operand});
  }
  kernel.output = {.element = type.element,
                   .pattern = Pattern::filler,
                   .count = 2 * threads * static_cast<std::size_t>(type.count)};
  kernel.comparison.element = type.element;
  kernel.comparison.any_nan = type.element == Element::f64;  // which of two NaNs comes out is not defined
  std::string body = fmt::format(
      "  .reg .{0} %old, %a, %b, %result;\n  .shared .align 8 .b8 places[{1}];\n  mad.wide.u32 %d1, %thread, "
      "{2}, %in0;\n"
      "  mad.wide.u32 %d2, %thread, {2}, %in1;\n  mad.wide.u32 %d3, %thread, {2}, %in2;\n  mad.wide.u32 %d4, "
      "%thread, "
      "{2}, %out;\n"
      "  mov.u32 %r1, places;\n  mad.lo.u32 %r1, %thread, {2}, %r1;\n  ld.global.{0} %old, [%d1];\n"
      "  ld.global.{0} %a, [%d2];\n  ld.global.{0} %b, [%d3];\n",
      type.registers, static_cast<int>(threads) * bytes, bytes);
  const std::string place = shared ? "[%r1]" : "[%d4]";
  body += fmt::format("  st.{}.{} {}, %old;\n", shared ? "shared" : "global", type.registers, place);
  // Where cas finds what it looks for, now and then.
  if (is_cas)
    body += fmt::format("  and.b32 %r2, %thread, 1;\n  setp.eq.u32 %p0, %r2, 0;\n  @%p0 mov.{} %a, %old;\n",
                        type.registers);
  if (returns) {
    body += fmt::format("  atom.{}.{}.{} %result, {}, %a{};\n", space, operation, type.name, place,
                        is_cas ? ", %b" : "");
    body +=
        fmt::format("  st.global.{} [%d4+{}], %result;\n", type.registers, static_cast<int>(threads) * bytes);
  } else {
    body += fmt::format("  red.{}.{}.{} {}, %a;\n", space, operation, type.name, place);
  }
  if (shared) {
    body += fmt::format("  bar.sync 0;\n  ld.shared.{0} %old, [%r1];\n  st.global.{0} [%d4], %old;\n",
                        type.registers);
  }
  return with_text(std::move(kernel), {.target = type.target, .body = body});
}

// Packed numbers that are added to memory at once.
MicroKernel vector_add(const char* name, Element element, int elements, bool returns) {
  const int bytes = static_cast<int>(bytes_of(element)) * elements;
  const bool half = element != Element::f32;
  MicroKernel kernel;
  kernel.name = fmt::format("{}.global.{}", returns ? "atom" : "red", name);
  kernel.block = {all_pairs, 1, 1};
  for (int operand = 0; operand < 2; ++operand) {
    kernel.inputs.push_back({.element = element,
                             .pattern = Pattern::edges,
                             .count = all_pairs * static_cast<std::size_t>(elements),
                             .operand = operand});
  }
  kernel.output = {.element = element,
                   .pattern = Pattern::filler,
                   .count = 2 * all_pairs * static_cast<std::size_t>(elements)};
  kernel.comparison.element = element;
  const bool packed = std::string_view(name).find("x2") != std::string_view::npos;
  const int registers = packed ? elements / 2 : elements;
  const char* letter = half && !packed ? "h" : "r";
  const int width = bytes / registers;
  std::string body = fmt::format(
      "  mad.wide.u32 %d1, %thread, {0}, %in0;\n  mad.wide.u32 %d2, %thread, {0}, %in1;\n  mad.wide.u32 %d3, "
      "%thread, "
      "{0}, %out;\n",
      bytes);
  std::string values, results;
  for (int i = 0; i < registers; ++i) {
    body += fmt::format("  ld.global.b{0} %{1}{2}, [%d1+{3}];\n  st.global.b{0} [%d3+{3}], %{1}{2};\n",
                        width * 8, letter, i + 10, i * width);
    body += fmt::format("  ld.global.b{} %{}{}, [%d2+{}];\n", width * 8, letter, i + 20, i * width);
    values += fmt::format("{}%{}{}", i == 0 ? "" : ", ", letter, i + 20);
    results += fmt::format("{}%{}{}", i == 0 ? "" : ", ", letter, i + 30);
  }
  body += returns ? fmt::format("  atom.global.{} {{{}}}, [%d3], {{{}}};\n", name, results, values)
                  : fmt::format("  red.global.{} [%d3], {{{}}};\n", name, values);
  for (int i = 0; returns && i < registers; ++i) {
    body += fmt::format("  st.global.b{} [%d3+{}], %{}{};\n", width * 8,
                        static_cast<int>(all_pairs) * bytes + i * width, letter, i + 30);
  }
  return with_text(std::move(kernel), {.target = sm_90a, .body = body});
}

// All threads at few places: what is left does not depend on their order.
MicroKernel contended(const char* space, const char* operation) {
  const bool shared = std::string_view(space) == "shared";
  MicroKernel kernel;
  kernel.name = fmt::format("red.{}.{}/contended", space, operation);
  kernel.grid = {shared ? 1u : 4u, 1, 1};
  kernel.block = {all_pairs, 1, 1};
  kernel.inputs = {{.element = Element::i32, .pattern = Pattern::bits, .count = 4 * all_pairs}};
  kernel.output = {.element = Element::i32, .pattern = Pattern::zeros, .count = 8};
  std::string body =
      "  ld.global.b32 %r0, [%in0_at];\n  and.b32 %r1, %thread, 7;\n  mad.wide.u32 %d1, %r1, 4, %out;\n";
  if (shared) {
    body += fmt::format(
        "  .shared .align 4 .b8 places[32];\n  mov.u32 %r2, places;\n  mad.lo.u32 %r2, %r1, 4, %r2;\n"
        "  setp.lt.u32 %p0, %thread, 8;\n  @%p0 st.shared.b32 [%r2], 0;\n  bar.sync 0;\n  red.shared.{} "
        "[%r2], "
        "%r0;\n"
        "  bar.sync 0;\n  @%p0 ld.shared.b32 %r3, [%r2];\n  @%p0 st.global.b32 [%d1], %r3;\n",
        operation);
  } else {
    body += fmt::format("  red.global.{} [%d1], %r0;\n", operation);
  }
  return with_text(std::move(kernel), {.target = sm_80, .body = body});
}

}  // namespace

std::vector<MicroKernel> atomic_kernels() {
  std::vector<MicroKernel> kernels;
  for (const AtomicType& type : types()) {
    for (const std::string operation : type.operations) {
      for (const char* space : {"global", "shared"}) {
        kernels.push_back(single(type, operation, space, true));
        const bool is_kept = std::string_view(space) == "global" || operation.starts_with("add");
        if (operation != "exch" && is_kept) kernels.push_back(single(type, operation, space, false));
      }
    }
  }
  for (const char* space : {"global", "shared"}) {
    kernels.push_back(single(types()[4], "cas", space, true));
    kernels.push_back(single(types()[5], "cas", space, true));
    kernels.push_back(single({"b16", Element::i16, 1, "b16", {}, sm_80}, "cas", space, true));
  }
  for (const char* space :
       {"relaxed.gpu.global", "acq_rel.gpu.global", "release.cta.global", "acquire.sys.global"}) {
    kernels.push_back(single(types()[0], "add", space, true));
  }
  for (const bool returns : {false, true}) {
    kernels.push_back(vector_add("add.v2.f32", Element::f32, 2, returns));
    kernels.push_back(vector_add("add.v4.f32", Element::f32, 4, returns));
    kernels.push_back(vector_add("add.noftz.v2.f16", Element::f16, 2, returns));
    kernels.push_back(vector_add("add.noftz.v8.f16", Element::f16, 8, returns));
    kernels.push_back(vector_add("add.noftz.v4.bf16", Element::bf16, 4, returns));
    kernels.push_back(vector_add("add.noftz.v2.f16x2", Element::f16, 4, returns));
    kernels.push_back(vector_add("add.noftz.v4.bf16x2", Element::bf16, 8, returns));
  }
  for (const char* operation : {"add.u32", "max.s32", "min.u32", "xor.b32", "or.b32"}) {
    kernels.push_back(contended("global", operation));
    kernels.push_back(contended("shared", operation));
  }
  return kernels;
}

}  // namespace jit::conformance
