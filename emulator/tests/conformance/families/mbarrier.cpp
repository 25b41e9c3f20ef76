// Barriers in memory (PTX ISA, "Parallel Synchronization and Communication Instructions: mbarrier"). What the
// 64 bits of a state are is not defined; what pending_count says of them is.
#include <string>

#include <fmt/format.h>

#include "micro_kernels/kernel_text.h"
#include "tests/conformance/families/families.h"

namespace jit::conformance {
namespace {

constexpr unsigned threads = 64;

// %gate (.b32) is the shared address of a barrier that expects `count` arrivals; results are %r10 … %r13.
MicroKernel gate_kernel(std::string name, unsigned count, const std::string& body,
                        const char* target = sm_90a) {
  MicroKernel kernel;
  kernel.name = std::move(name);
  kernel.block = {threads, 1, 1};
  kernel.inputs = {{.element = Element::i32, .pattern = Pattern::bits, .count = threads}};
  kernel.output = words(4 * threads);
  std::string prologue = fmt::format(
      "  .shared .align 8 .b8 gates[64];\n  .shared .align 4 .b8 words[256];\n  .reg .b32 %gate, %word;\n"
      "  mov.u32 %gate, gates;\n  mov.u32 %word, words;\n  mad.lo.u32 %word, %thread, 4, %word;\n"
      "  setp.eq.u32 %p31, %thread, 0;\n  @%p31 mbarrier.init.shared.b64 [%gate], {};\n  bar.sync 0;\n",
      count);
  for (int i = 10; i < 14; ++i) prologue += fmt::format("  mov.b32 %r{}, 0;\n", i);
  return with_text(std::move(kernel),
                   {.target = target,
                    .body = prologue + load_words(0, 1, 0, threads) + body + store_words(10, 4, threads)});
}

std::string wait(int parity, const char* label) {
  return fmt::format("{0}:\n  mbarrier.try_wait.parity.shared.b64 %p9, [%gate], {1};\n  @!%p9 bra {0};\n",
                     label, parity);
}

std::string note(int result, const char* predicate) {
  return fmt::format("  selp.b32 %r{}, 1, 2, {};\n", result, predicate);
}

const std::string exchange =
    "  mov.u32 %r6, words;\n  sub.u32 %r5, %word, %r6;\n"
    "  xor.b32 %r5, %r5, 128;\n  add.u32 %r5, %r5, %r6;\n  ld.shared.b32 %r10, [%r5];\n";

}  // namespace

std::vector<MicroKernel> mbarrier_kernels() {
  std::vector<MicroKernel> kernels;
  kernels.push_back(
      gate_kernel("mbarrier.arrive", threads,
                  "  st.shared.b32 [%word], %r0;\n  mbarrier.arrive.shared.b64 %d1, [%gate];\n" +
                      wait(0, "WAIT") + exchange));
  kernels.push_back(
      gate_kernel("mbarrier.test_wait", threads,
                  "  st.shared.b32 [%word], %r0;\n  mbarrier.arrive.shared.b64 %d1, [%gate];\n"
                  "WAIT:\n  mbarrier.test_wait.shared.b64 %p9, [%gate], %d1;\n  @!%p9 bra WAIT;\n" +
                      exchange,
                  sm_80));
  kernels.push_back(gate_kernel(
      "mbarrier.try_wait.state", threads,
      "  st.shared.b32 [%word], %r0;\n  mbarrier.arrive.release.cta.shared::cta.b64 %d1, [%gate];\n"
      "WAIT:\n  mbarrier.try_wait.acquire.cta.shared::cta.b64 %p9, [%gate], %d1, 1000;\n"
      "  @!%p9 bra WAIT;\n" +
          exchange));
  kernels.push_back(gate_kernel(
      "mbarrier.test_wait.parity", 1,
      "  mbarrier.test_wait.parity.shared.b64 %p0, [%gate], 0;\n" + note(10, "%p0") +
          "  mbarrier.test_wait.parity.shared.b64 %p1, [%gate], 1;\n" + note(11, "%p1") +
          "  bar.sync 0;\n  @%p31 mbarrier.arrive.shared.b64 %d1, [%gate];\n  bar.sync 0;\n"
          "  mbarrier.test_wait.parity.shared.b64 %p0, [%gate], 0;\n" +
          note(12, "%p0") + "  mbarrier.test_wait.parity.shared.b64 %p1, [%gate], 1;\n" + note(13, "%p1")));
  // The state that arrivals return counts down within a phase.
  kernels.push_back(
      gate_kernel("mbarrier.pending_count", 5,
                  "  @!%p31 bra DONE;\n  mbarrier.arrive.shared.b64 %d1, [%gate];\n  "
                  "mbarrier.pending_count.b64 %r10, %d1;\n"
                  "  mbarrier.arrive.shared.b64 %d1, [%gate], 2;\n  mbarrier.pending_count.b64 %r11, %d1;\n"
                  "  mbarrier.arrive_drop.shared.b64 %d1, [%gate];\n  mbarrier.pending_count.b64 %r12, %d1;\n"
                  "  mbarrier.arrive.shared.b64 %d1, [%gate];\n  mbarrier.arrive.shared.b64 %d1, [%gate];\n"
                  "  mbarrier.pending_count.b64 %r13, %d1;\nDONE:\n"));
  kernels.push_back(gate_kernel(
      "mbarrier.arrive.noComplete", 6,
      "  @!%p31 bra DONE;\n  mbarrier.arrive.noComplete.shared.b64 %d1, [%gate], 2;\n"
      "  mbarrier.pending_count.b64 %r10, %d1;\n  mbarrier.arrive_drop.noComplete.shared.b64 %d1, [%gate], "
      "2;\n"
      "  mbarrier.pending_count.b64 %r11, %d1;\n  mbarrier.arrive.shared.b64 %d1, [%gate], 2;\n"
      "  mbarrier.test_wait.shared.b64 %p0, [%gate], %d1;\n" +
          note(12, "%p0") +
          "  mbarrier.arrive.shared.b64 %d1, [%gate];\n  mbarrier.pending_count.b64 %r13, %d1;\nDONE:\n"));
  // Three phases, with the parity that a loop keeps.
  kernels.push_back(
      gate_kernel("mbarrier/phases", threads,
                  "  mov.u32 %r1, 0;\n  mov.u32 %r11, 0;\nLOOP:\n  add.u32 %r2, %r0, %r1;\n  st.shared.b32 "
                  "[%word], %r2;\n"
                  "  mbarrier.arrive.shared.b64 _, [%gate];\n  and.b32 %r3, %r1, 1;\nWAIT:\n"
                  "  mbarrier.try_wait.parity.shared.b64 %p9, [%gate], %r3;\n  @!%p9 bra WAIT;\n" +
                      exchange +
                      "  mad.lo.u32 %r11, %r11, 31, %r10;\n  bar.sync 0;\n  add.u32 %r1, %r1, 1;\n  "
                      "setp.lt.u32 %p1, %r1, 3;\n"
                      "  @%p1 bra LOOP;\n"));
  // Bytes that are announced hold the phase open, whoever delivers them.
  kernels.push_back(
      gate_kernel("mbarrier.expect_tx", 1,
                  "  @!%p31 bra DONE;\n  mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%gate], 96;\n"
                  "  mbarrier.arrive.shared.b64 %d1, [%gate];\n  mbarrier.test_wait.parity.shared.b64 %p0, "
                  "[%gate], 0;\n" +
                      note(10, "%p0") +
                      "  mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%gate], 64;\n"
                      "  mbarrier.test_wait.parity.shared.b64 %p0, [%gate], 0;\n" +
                      note(11, "%p0") +
                      "  mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%gate], 32;\n"
                      "  mbarrier.test_wait.parity.shared.b64 %p0, [%gate], 0;\n" +
                      note(12, "%p0") + "DONE:\n"));
  kernels.push_back(
      gate_kernel("mbarrier.arrive.expect_tx", 1,
                  "  @!%p31 bra DONE;\n  mbarrier.arrive.expect_tx.shared.b64 %d1, [%gate], 16;\n"
                  "  mbarrier.test_wait.shared.b64 %p0, [%gate], %d1;\n" +
                      note(10, "%p0") +
                      "  mbarrier.complete_tx.relaxed.cluster.shared::cluster.b64 [%gate], 16;\n"
                      "  mbarrier.test_wait.shared.b64 %p0, [%gate], %d1;\n" +
                      note(11, "%p0") + "DONE:\n"));
  kernels.push_back(gate_kernel("mbarrier.arrive_drop", threads,
                                "  st.shared.b32 [%word], %r0;\n  setp.lt.u32 %p0, %thread, 32;\n  @%p0 "
                                "mbarrier.arrive_drop.shared.b64 _, [%gate];\n"
                                "  @!%p0 mbarrier.arrive.shared.b64 _, [%gate];\n" +
                                    wait(0, "FIRST") + exchange +
                                    "  @!%p0 mbarrier.arrive.shared.b64 _, [%gate];\n" + wait(1, "SECOND") +
                                    "  mov.b32 %r11, 3;\n"));
  kernels.push_back(gate_kernel(
      "mbarrier.inval", 1,
      "  @!%p31 bra DONE;\n  mbarrier.inval.shared.b64 [%gate];\n  mbarrier.init.shared.b64 [%gate], 3;\n"
      "  mbarrier.arrive.shared.b64 %d1, [%gate];\n  mbarrier.pending_count.b64 %r10, %d1;\n"
      "  mbarrier.arrive.shared.b64 %d1, [%gate];\n  mbarrier.arrive.shared.b64 %d1, [%gate];\n"
      "  mbarrier.inval.shared.b64 [%gate];\nDONE:\n"));
  return kernels;
}

}  // namespace jit::conformance
