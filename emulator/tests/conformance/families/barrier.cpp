// Barriers of a block (PTX ISA, "bar", "barrier").
#include <string>

#include <fmt/format.h>

#include "micro_kernels/kernel_text.h"
#include "tests/conformance/families/families.h"

namespace jit::conformance {
namespace {

constexpr unsigned threads = 128;

// Each thread has a word of shared memory at %r20; %r0 is a random word, %r10 and %r11 are stored.
MicroKernel barrier_kernel(std::string name, const std::string& body) {
  MicroKernel kernel;
  kernel.name = std::move(name);
  kernel.block = {threads, 1, 1};
  kernel.inputs = {{.element = Element::i32, .pattern = Pattern::bits, .count = threads}};
  kernel.output = words(2 * threads);
  return with_text(std::move(kernel),
                   {.target = sm_80,
                    .body = "  .shared .align 4 .b8 words[512];\n  mov.u32 %r21, words;\n  mad.lo.u32 %r20, "
                            "%thread, 4, %r21;\n"
                            "  mov.u32 %r11, 0;\n" +
                            load_words(0, 1, 0, threads) + body + store_words(10, 2, threads)});
}

// A word of the thread half a block (or of `distance` words) away.
std::string exchange(const std::string& wait, unsigned distance) {
  return "  st.shared.b32 [%r20], %r0;\n" + wait +
         fmt::format(
             "  xor.b32 %r1, %thread, {};\n  mad.lo.u32 %r1, %r1, 4, %r21;\n  ld.shared.b32 %r10, [%r1];\n",
             distance);
}

}  // namespace

std::vector<MicroKernel> barrier_kernels() {
  std::vector<MicroKernel> kernels;
  kernels.push_back(barrier_kernel("bar.sync", exchange("  bar.sync 0;\n", 64)));
  kernels.push_back(barrier_kernel("bar.sync/id", exchange("  bar.sync 15;\n", 96)));
  kernels.push_back(barrier_kernel("bar.sync/count", exchange("  bar.sync 3, 128;\n", 64)));
  kernels.push_back(barrier_kernel("barrier.sync", exchange("  barrier.sync 2;\n", 64)));
  kernels.push_back(
      barrier_kernel("barrier.cta.sync.aligned", exchange("  barrier.cta.sync.aligned 1, 128;\n", 64)));
  kernels.push_back(barrier_kernel("bar.cta.sync", exchange("  bar.cta.sync 4;\n", 64)));
  // Each half of the block has a barrier of its own, named by a register.
  kernels.push_back(barrier_kernel(
      "bar.sync/register",
      exchange(
          "  shr.u32 %r2, %thread, 6;\n  add.u32 %r2, %r2, 5;\n  mov.u32 %r3, 64;\n  bar.sync %r2, %r3;\n",
          32)));
  kernels.push_back(barrier_kernel("bar.arrive",
                                   "  setp.lt.u32 %p0, %thread, 64;\n  @%p0 bra CONSUMER;\n  st.shared.b32 "
                                   "[%r20], %r0;\n  bar.arrive 1, 128;\n"
                                   "  mov.u32 %r10, %r0;\n  bra DONE;\nCONSUMER:\n  bar.sync 1, 128;\n  "
                                   "ld.shared.b32 %r10, [%r20+256];\nDONE:\n"));
  kernels.push_back(barrier_kernel(
      "barrier.arrive/loop",
      "  setp.lt.u32 %p0, %thread, 64;\n  mov.u32 %r10, 0;\n  mov.u32 %r2, 0;\n  @%p0 bra CONSUMER;\n"
      "PRODUCER:\n  barrier.sync 2, 128;\n  add.u32 %r0, %r0, %r2;\n  st.shared.b32 [%r20], %r0;\n  "
      "barrier.arrive 1, 128;\n"
      "  add.u32 %r2, %r2, 1;\n  setp.lt.u32 %p1, %r2, 4;\n  @%p1 bra PRODUCER;\n  bra DONE;\n"
      "CONSUMER:\n  barrier.arrive 2, 128;\n  barrier.sync 1, 128;\n  ld.shared.b32 %r3, [%r20+256];\n"
      "  mad.lo.u32 %r10, %r10, 31, %r3;\n  add.u32 %r2, %r2, 1;\n  setp.lt.u32 %p1, %r2, 4;\n  @%p1 bra "
      "CONSUMER;\nDONE:\n"));
  const std::string odd = "  and.b32 %r1, %r0, 1;\n  setp.eq.u32 %p0, %r1, 1;\n";
  kernels.push_back(
      barrier_kernel("bar.red.popc.u32",
                     odd + "  bar.red.popc.u32 %r10, 0, %p0;\n  bar.red.popc.u32 %r11, 1, 128, !%p0;\n"));
  for (const char* operation : {"and", "or"}) {
    for (const char* test :
         {"setp.lt.u32 %p0, %thread, 200", "setp.eq.u32 %p0, %thread, 99", "setp.gt.u32 %p0, %thread, 200"}) {
      kernels.push_back(
          barrier_kernel(fmt::format("bar.red.{}.pred/{}", operation,
                                     std::string_view(test).substr(5, 2) == "eq"   ? "one"
                                     : std::string_view(test).substr(5, 2) == "lt" ? "all"
                                                                                   : "none"),
                         fmt::format("  {};\n  bar.red.{}.pred %p1, 0, %p0;\n  selp.b32 %r10, 1, 0, %p1;\n",
                                     test, operation)));
    }
  }
  kernels.push_back(barrier_kernel(
      "barrier.red.popc.u32",
      odd + "  barrier.cta.red.popc.u32 %r10, 2, %p0;\n  barrier.red.popc.aligned.u32 %r11, 3, 128, %p0;\n"));
  return kernels;
}

}  // namespace jit::conformance
