// Loads and stores in every space (PTX ISA, "ld", "ld.global.nc", "st", "prefetch", "createpolicy", "cvta").
#include <string>

#include <fmt/format.h>

#include "micro_kernels/kernel_text.h"
#include "tests/conformance/families/families.h"

namespace jit::conformance {
namespace {

constexpr unsigned threads = 32;

// Each thread has 16 bytes of its own at %d1 (input) and %d2 (output), and of shared memory at %r20.
MicroKernel memory_kernel(std::string name, const std::string& body, const char* target = sm_80,
                          const std::string& declarations = "") {
  MicroKernel kernel;
  kernel.name = std::move(name);
  kernel.block = {threads, 1, 1};
  kernel.inputs = {{.element = Element::i32, .pattern = Pattern::bits, .count = 4 * threads}};
  kernel.output = words(4 * threads);
  const std::string prologue =
      "  .shared .align 16 .b8 near[1024];\n  mad.wide.u32 %d1, %thread, 16, %in0;\n  mad.wide.u32 %d2, "
      "%thread, "
      "16, %out;\n"
      "  mov.u32 %r20, near;\n  mad.lo.u32 %r20, %thread, 16, %r20;\n";
  return with_text(std::move(kernel),
                   {.target = target, .body = prologue + body, .declarations = declarations});
}

struct Access {
  const char* type;
  char letter;  ///< of the register: r, d or h
  int bytes;
  int most;  ///< longest vector
};

constexpr Access accesses[] = {{"b8", 'h', 1, 4},  {"u8", 'r', 1, 4},  {"s8", 'r', 1, 4},
                               {"b16", 'h', 2, 4}, {"u16", 'r', 2, 4}, {"s16", 'r', 2, 4},
                               {"b32", 'r', 4, 4}, {"f32", 'r', 4, 4}, {"s32", 'd', 4, 1},
                               {"u32", 'd', 4, 1}, {"b64", 'd', 8, 2}, {"f64", 'd', 8, 2}};

std::string vector_of(char letter, int count, int first) {
  if (count == 1) return fmt::format("%{}{}", letter, first);
  std::string text = "{";
  for (int i = 0; i < count; ++i) text += fmt::format("{}%{}{}", i == 0 ? "" : ", ", letter, first + i);
  return text + "}";
}

// A load, and stores that show the whole registers.
void append_accesses(std::vector<MicroKernel>& kernels) {
  for (const Access& access : accesses) {
    for (int count = 1; count <= access.most; count *= 2) {
      const std::string type = fmt::format("{}{}", count == 1 ? "" : fmt::format("v{}.", count), access.type);
      const std::string value = vector_of(access.letter, count, 8);
      // Signs of narrow loads reach to the end of the register, of which 16 bytes are shown.
      const int width = access.letter == 'd' ? 8 : access.letter == 'r' ? 4 : 2;
      std::string show;
      for (int i = 0; i < count; ++i) {
        show += fmt::format("  st.global.b{} [%d2+{}], %{}{};\n", width * 8, i * width, access.letter, 8 + i);
      }
      kernels.push_back(
          memory_kernel("ld.global." + type, fmt::format("  ld.global.{} {}, [%d1];\n", type, value) + show));
      kernels.push_back(memory_kernel(
          "st.shared.ld.shared." + type,
          fmt::format("  ld.global.{0} {1}, [%d1];\n  st.shared.{0} [%r20], {1};\n  bar.sync 0;\n"
                      "  xor.b32 %r21, %r20, 16;\n  ld.shared.{0} {1}, [%r21];\n",
                      type, value) +
              show));
      kernels.push_back(memory_kernel(
          "st.global." + type,
          fmt::format("  ld.global.{0} {1}, [%d1];\n  st.global.{0} [%d2], {1};\n", type, value)));
    }
  }
}

void append_qualifiers(std::vector<MicroKernel>& kernels) {
  const std::string store = "  st.global.b32 [%d2], %r8;\n";
  for (const char* load :
       {"ld.global.nc.b32", "ld.volatile.global.b32", "ld.relaxed.gpu.global.b32",
        "ld.acquire.sys.global.b32", "ld.global.ca.b32", "ld.global.cg.b32", "ld.global.cs.b32",
        "ld.global.lu.b32", "ld.global.cv.b32", "ld.global.nc.L1::no_allocate.b32",
        "ld.global.L1::evict_last.b32", "ld.global.L2::128B.b32", "ld.global.nc.L1::no_allocate.L2::256B.b32",
        "ld.weak.global.b32", "ldu.global.b32", "ld.b32"}) {
    kernels.push_back(
        memory_kernel(fmt::format("{}/qualified", load), fmt::format("  {} %r8, [%d1+4];\n", load) + store));
  }
  for (const char* instruction :
       {"st.volatile.global.b32", "st.relaxed.gpu.global.b32", "st.release.gpu.global.b32",
        "st.global.wb.b32", "st.global.cg.b32", "st.global.cs.b32", "st.global.wt.b32", "st.weak.global.b32",
        "st.global.L1::no_allocate.b32", "st.b32"}) {
    kernels.push_back(
        memory_kernel(fmt::format("{}/qualified", instruction),
                      fmt::format("  ld.global.b32 %r8, [%d1+8];\n  {} [%d2+12], %r8;\n", instruction)));
  }
  kernels.push_back(
      memory_kernel("createpolicy",
                    "  createpolicy.fractional.L2::evict_last.b64 %d5, 1.0;\n"
                    "  createpolicy.fractional.L2::evict_first.L2::evict_unchanged.b64 %d6, 0.5;\n"
                    "  ld.global.L2::cache_hint.b32 %r8, [%d1], %d5;\n"
                    "  st.global.L2::cache_hint.b32 [%d2], %r8, %d6;\n"));
  kernels.push_back(
      memory_kernel("prefetch",
                    "  prefetch.global.L2 [%d1];\n  prefetch.global.L1 [%d1];\n  prefetchu.L1 [%d1];\n"
                    "  prefetch.global.L2::evict_last [%d1];\n  ld.global.b32 %r8, [%d1];\n" +
                        store));
}

void append_spaces(std::vector<MicroKernel>& kernels) {
  kernels.push_back(memory_kernel(
      "ld.local",
      "  .local .align 16 .b8 own[64];\n  mov.u64 %d3, own;\n  ld.global.v4.b32 {%r4, %r5, %r6, %r7}, "
      "[%d1];\n"
      "  st.local.v4.b32 [own], {%r4, %r5, %r6, %r7};\n  st.local.v2.b32 [own+16], {%r5, %r4};\n"
      "  st.local.b64 [own+24], %d1;\n  and.b32 %r2, %r4, 20;\n  cvt.u64.u32 %d4, %r2;\n"
      "  add.u64 %d3, %d3, %d4;\n  ld.local.b32 %r8, [%d3];\n"
      "  ld.local.s8 %r9, [own+3];\n  ld.local.u16 %r10, [own+18];\n"
      "  cvta.local.u64 %d3, %d3;\n"
      "  ld.b32 %r11, [%d3];\n  st.global.v4.b32 [%d2], {%r8, %r9, %r10, %r11};\n"));
  kernels.push_back(memory_kernel(
      "ld.const",
      "  and.b32 %r1, %thread, 7;\n  mov.u64 %d3, table;\n  mad.wide.u32 %d3, %r1, 4, %d3;\n  ld.const.b32 "
      "%r8, "
      "[%d3];\n"
      "  ld.const.v2.u8 {%r9, %r10}, [table+6];\n  ld.const.f64 %d4, [pi];\n  mov.b64 {%r4, %r11}, %d4;\n"
      "  st.global.v4.b32 [%d2], {%r8, %r9, %r10, %r11};\n",
      sm_80,
      ".const .align 16 .b32 table[8] = {1, -2, 0x7fffffff, 4, 50, 600};\n.const .f64 pi = "
      "0d400921FB54442D18;\n"));
  kernels.push_back(memory_kernel(
      "variables",
      "  mov.u64 %d3, numbers;\n  and.b32 %r1, %thread, 3;\n  mad.wide.u32 %d3, %r1, 2, %d3;\n  "
      "ld.global.u16 "
      "%r8, [%d3];\n"
      "  ld.global.b64 %d4, [place];\n  ld.u16 %r9, [%d4];\n  ld.global.f32 %r10, [ratio];\n  ld.global.u8 "
      "%r11, [bytes+2];\n"
      "  st.global.v4.b32 [%d2], {%r8, %r9, %r10, %r11};\n",
      sm_80,
      ".global .align 8 .u16 numbers[4] = {7, 65535, 9, 10};\n.global .u64 place = generic(numbers)+4;\n"
      ".global .f32 ratio = 0f3F000000;\n.global .align 4 .b8 bytes[5] = {1, 2, 254, 4};\n"));
  kernels.push_back(memory_kernel(
      "generic",
      "  .local .align 8 .b8 own[8];\n  ld.global.v2.b32 {%r4, %r5}, [%d1];\n  st.shared.b32 [%r20], %r4;\n"
      "  st.local.b32 [own], %r5;\n  cvt.u64.u32 %d3, %r20;\n  cvta.shared.u64 %d3, %d3;\n  mov.u64 %d4, "
      "own;\n"
      "  cvta.local.u64 %d4, %d4;\n"
      // Threads take shared, local or global memory through the same load.
      "  and.b32 %r1, %thread, 3;\n  setp.eq.u32 %p0, %r1, 0;\n  selp.b64 %d5, %d3, %d4, %p0;\n"
      "  setp.ge.u32 %p1, %r1, 2;\n  selp.b64 %d5, %d1, %d5, %p1;\n  ld.b32 %r8, [%d5];\n"
      "  add.u32 %r9, %r8, 1;\n  @!%p1 st.b32 [%d5], %r9;\n  @!%p1 ld.b32 %r10, [%d5];\n  @%p1 mov.b32 %r10, "
      "3;\n"
      "  cvta.to.shared.u64 %d7, %d3;\n  cvt.u32.u64 %r11, %d7;\n  sub.u32 %r11, %r11, %r20;\n"
      "  st.global.v4.b32 [%d2], {%r8, %r9, %r10, %r11};\n"));
  MicroKernel parameters = memory_kernel(
      "ld.param",
      "  ld.param.b32 %r8, [in0];\n  ld.param.v2.b32 {%r9, %r10}, [in0];\n  ld.param.b64 %d3, [in0];\n"
      "  ld.param.u8 %r11, [in0+1];\n  cvt.u32.u64 %r4, %d3;\n  sub.u32 %r8, %r8, %r4;\n  sub.u32 %r9, %r9, "
      "%r4;\n"
      "  shr.u64 %d3, %d3, 32;\n  cvt.u32.u64 %r5, %d3;\n  sub.u32 %r10, %r10, %r5;\n  shr.u32 %r4, %r4, 8;\n"
      "  and.b32 %r4, %r4, 255;\n  sub.u32 %r11, %r11, %r4;\n  st.global.v4.b32 [%d2], {%r8, %r9, %r10, "
      "%r11};\n");
  kernels.push_back(std::move(parameters));
  for (const char* fence :
       {"membar.cta", "membar.gl", "membar.sys", "fence.sc.cta", "fence.acq_rel.gpu", "fence.sc.sys"}) {
    kernels.push_back(memory_kernel(
        fence, fmt::format("  ld.global.b32 %r8, [%d1];\n  {};\n  st.global.b32 [%d2], %r8;\n", fence)));
  }
  for (const char* fence :
       {"fence.proxy.async", "fence.proxy.async.shared::cta", "fence.proxy.async.global",
        "fence.mbarrier_init.release.cluster", "fence.acq_rel.cluster", "fence.proxy.alias"}) {
    kernels.push_back(memory_kernel(
        fence, fmt::format("  ld.global.b32 %r8, [%d1];\n  {};\n  st.global.b32 [%d2], %r8;\n", fence),
        sm_90a));
  }
}

}  // namespace

std::vector<MicroKernel> memory_kernels() {
  std::vector<MicroKernel> kernels;
  append_accesses(kernels);
  append_qualifiers(kernels);
  append_spaces(kernels);
  return kernels;
}

}  // namespace jit::conformance
