#include "micro_kernels/kernel_text.h"

#include <stdexcept>

#include <fmt/format.h>

namespace jit::conformance {
namespace {

// Calls f(first byte, guard) for each 16 bytes per thread that a copy moves; the guard disables surplus
// threads of the last round.
template <class F>
void for_each_part(unsigned bytes, unsigned threads, F f) {
  if (bytes % 16 != 0) throw std::logic_error("shared memory is moved by 16 bytes");
  for (unsigned i = 0; i < bytes; i += 16 * threads) f(i, bytes - i < 16 * threads ? "@%p29 " : "");
}

}  // namespace

MicroKernel with_text(MicroKernel kernel, const Text& text) {
  std::string parameters = ".param .u64 out";
  std::string registers = "  .reg .b64 %out, %out_at;\n";
  std::string loads =
      "  mov.u32 %thread, %tid.x;\n  mov.u32 %lane, %laneid;\n  shr.u32 %warp, %thread, 5;\n  mov.u32 %rank, "
      "%ctaid.x;\n"
      "  mov.u32 %index, %ntid.x;\n  mad.lo.u32 %index, %rank, %index, %thread;\n"
      "  ld.param.u64 %out, [out];\n  mad.wide.u32 %out_at, %index, 4, %out;\n";
  for (std::size_t i = 0; i < kernel.inputs.size(); ++i) {
    parameters += fmt::format(", .param .u64 in{}", i);
    registers += fmt::format("  .reg .b64 %in{0}, %in{0}_at;\n", i);
    loads +=
        fmt::format("  ld.param.u64 %in{0}, [in{0}];\n  mad.wide.u32 %in{0}_at, %index, 4, %in{0};\n", i);
  }
  for (std::size_t i = 0; i < kernel.maps.size(); ++i) {
    parameters += fmt::format(", .param .align 64 .b8 map{}[128]", i);
    registers += fmt::format("  .reg .b64 %map{};\n", i);
    loads += fmt::format("  mov.b64 %map{0}, map{0};\n  cvta.param.u64 %map{0}, %map{0};\n", i);
  }
  std::string declarations = text.declarations;
  if (kernel.dynamic_smem != 0) {
    declarations += ".extern .shared .align 1024 .b8 dynamic_smem[];\n";
    loads += "  mov.u32 %smem, dynamic_smem;\n";
  }
  kernel.ptx = fmt::format(
      ".version {}\n.target {}\n.address_size 64\n{}.visible .entry micro({})\n{}{{\n"
      "  .reg .b32 %r<{}>;\n  .reg .b64 %d<64>;\n  .reg .b16 %h<64>;\n  .reg .pred %p<32>;\n"
      "  .reg .b32 %thread, %lane, %warp, %rank, %index, %smem;\n{}{}{}  ret;\n}}\n",
      text.version, text.target, declarations, parameters, text.directives, text.registers, registers, loads,
      text.body);
  return kernel;
}

std::string load_words(int first, int count, int input, unsigned threads) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    text += fmt::format("  ld.global.b32 %r{}, [%in{}_at+{}];\n", first + i, input,
                        4 * threads * static_cast<unsigned>(i));
  }
  return text;
}

std::string store_words(int first, int count, unsigned threads, int row) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    text += fmt::format("  st.global.b32 [%out_at+{}], %r{};\n", 4 * threads * static_cast<unsigned>(row + i),
                        first + i);
  }
  return text;
}

std::string fill_shared(unsigned to, int input, unsigned from, unsigned bytes, unsigned threads) {
  std::string text =
      fmt::format("  mad.wide.u32 %d0, %thread, 16, %in{};\n  mad.lo.u32 %r4, %thread, 16, %smem;\n", input);
  for_each_part(bytes, threads, [&](unsigned i, const std::string& guard) {
    text += guard.empty() ? "" : fmt::format("  setp.lt.u32 %p29, %thread, {};\n", (bytes - i) / 16);
    text += fmt::format(
        "  {0}ld.global.v4.b32 {{%r0, %r1, %r2, %r3}}, [%d0+{1}];\n"
        "  {0}st.shared.v4.b32 [%r4+{2}], {{%r0, %r1, %r2, %r3}};\n",
        guard, from + i, to + i);
  });
  return text;
}

std::string store_shared(unsigned to, unsigned from, unsigned bytes, unsigned threads) {
  std::string text = fmt::format(
      "  mad.wide.u32 %d0, %thread, 16, %out;\n  mad.wide.u32 %d0, %rank, {}, %d0;\n"
      "  mad.lo.u32 %r4, %thread, 16, %smem;\n",
      bytes);
  for_each_part(bytes, threads, [&](unsigned i, const std::string& guard) {
    text += guard.empty() ? "" : fmt::format("  setp.lt.u32 %p29, %thread, {};\n", (bytes - i) / 16);
    text += fmt::format(
        "  {0}ld.shared.v4.b32 {{%r0, %r1, %r2, %r3}}, [%r4+{1}];\n"
        "  {0}st.global.v4.b32 [%d0+{2}], {{%r0, %r1, %r2, %r3}};\n",
        guard, from + i, to + i);
  });
  return text;
}

std::string replace_all(std::string text, std::string_view name, std::string_view by) {
  for (std::size_t at = text.find(name); at != std::string::npos; at = text.find(name, at + by.size())) {
    text.replace(at, name.size(), by);
  }
  return text;
}

}  // namespace jit::conformance
