// Matrix fragments to and from shared memory (PTX ISA, "ldmatrix", "stmatrix", "movmatrix").
#include <string>

#include <fmt/format.h>

#include "micro_kernels/kernel_text.h"
#include "tests/conformance/families/families.h"

namespace jit::conformance {
namespace {

constexpr unsigned smem_bytes = 2048;

// One warp; %r20 is the address of a row of 16 bytes, which lanes take in a scattered order.
MicroKernel move_kernel(std::string name, const std::string& body, const char* target) {
  MicroKernel kernel;
  kernel.name = std::move(name);
  kernel.dynamic_smem = smem_bytes;
  kernel.inputs = {{.element = Element::i32, .pattern = Pattern::bits, .count = smem_bytes / 4}};
  kernel.output = words(smem_bytes / 4);
  return with_text(std::move(kernel),
                   {.target = target,
                    .body = fill_shared(0, 0, 0, smem_bytes, 32) +
                            "  bar.sync 0;\n  mad.lo.u32 %r20, %lane, 37, 5;\n  and.b32 %r20, %r20, 127;\n"
                            "  mad.lo.u32 %r20, %r20, 16, %smem;\n" +
                            body});
}

std::string fragments(int count) {
  std::string text = "{";
  for (int i = 0; i < count; ++i) text += fmt::format("{}%r{}", i == 0 ? "" : ", ", 10 + i);
  return text + "}";
}

}  // namespace

std::vector<MicroKernel> matrix_move_kernels() {
  std::vector<MicroKernel> kernels;
  for (const int count : {1, 2, 4}) {
    for (const char* trans : {"", ".trans"}) {
      const std::string load = fmt::format("ldmatrix.sync.aligned.m8n8.x{}{}.shared.b16", count, trans);
      kernels.push_back(move_kernel(
          load, fmt::format("  {} {}, [%r20];\n", load, fragments(count)) + store_words(10, count, 32),
          sm_80));
      const std::string store = fmt::format("stmatrix.sync.aligned.m8n8.x{}{}.shared.b16", count, trans);
      kernels.push_back(
          move_kernel(store,
                      load_words(10, count, 0, 32) +
                          fmt::format("  {} [%r20], {};\n  bar.sync 0;\n", store, fragments(count)) +
                          store_shared(0, 0, smem_bytes, 32),
                      sm_90a));
    }
  }
  // Only the lanes whose address counts hold a valid one.
  kernels.push_back(move_kernel("ldmatrix.sync.aligned.m8n8.x1.shared.b16/few",
                                "  setp.ge.u32 %p0, %lane, 8;\n  @%p0 mov.u32 %r20, %smem;\n"
                                "  ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r10}, [%r20];\n" +
                                    store_words(10, 1, 32),
                                sm_80));
  kernels.push_back(move_kernel("ldmatrix.generic",
                                "  cvt.u64.u32 %d1, %r20;\n  cvta.shared.u64 %d1, %d1;\n"
                                "  ldmatrix.sync.aligned.m8n8.x4.b16 {%r10, %r11, %r12, %r13}, [%d1];\n" +
                                    store_words(10, 4, 32),
                                sm_80));
  kernels.push_back(move_kernel("movmatrix.sync.aligned.m8n8.trans.b16",
                                load_words(0, 1, 0, 32) +
                                    "  movmatrix.sync.aligned.m8n8.trans.b16 %r10, %r0;\n" +
                                    store_words(10, 1, 32),
                                sm_80));
  return kernels;
}

}  // namespace jit::conformance
