// Exchange within a warp (PTX ISA, "shfl.sync", "vote.sync", "match.sync", "activemask", "redux.sync",
// "elect.sync", "bar.warp.sync").
#include <string>

#include <fmt/format.h>

#include "micro_kernels/kernel_text.h"
#include "tests/conformance/families/families.h"

namespace jit::conformance {
namespace {

constexpr unsigned threads = 64;

// The body finds a random word in %r0, a small one in %r1 and in %r2, and leaves results in %r10 and %r11.
MicroKernel warp_kernel(std::string name, const std::string& body, const char* target = sm_80) {
  MicroKernel kernel;
  kernel.name = std::move(name);
  kernel.block = {threads, 1, 1};
  kernel.inputs = {
      {.element = Element::i32, .pattern = Pattern::bits, .count = threads},
      {.element = Element::i32, .pattern = Pattern::range, .count = threads, .low = 0, .high = 40},
      {.element = Element::i32, .pattern = Pattern::range, .count = threads, .low = 0, .high = 3}};
  kernel.output = words(2 * threads);
  return with_text(
      std::move(kernel),
      {.target = target,
       .body = load_words(0, 1, 0, threads) + load_words(1, 1, 1, threads) + load_words(2, 1, 2, threads) +
               "  mov.b32 %r10, 0;\n  mov.b32 %r11, 0;\n" + body + store_words(10, 2, threads)});
}

const std::string note_predicate = "  selp.b32 %r11, 1, 0, %p0;\n";

void append_shuffles(std::vector<MicroKernel>& kernels) {
  for (const char* mode : {"up", "down", "bfly", "idx"}) {
    // The register's bits 0…4 clamp, bits 8…12 say which bits of the lane stay.
    for (const unsigned control : {0x1fu, 0u, 0x1807u, 0x0007u, 0x100fu, 0x1c03u, 0x181fu}) {
      kernels.push_back(
          warp_kernel(fmt::format("shfl.sync.{}.b32/{:#x}", mode, control),
                      fmt::format("  shfl.sync.{}.b32 %r10|%p0, %r0, %r1, {}, 0xffffffff;\n", mode, control) +
                          note_predicate));
    }
    kernels.push_back(warp_kernel(fmt::format("shfl.sync.{}.b32/literal", mode),
                                  fmt::format("  shfl.sync.{}.b32 %r10, %r0, 4, 0x1f, -1;\n", mode)));
    kernels.push_back(warp_kernel(fmt::format("shfl.sync.{}.b32/registers", mode),
                                  fmt::format("  and.b32 %r3, %r0, 0x1f1f;\n  mov.u32 %r4, 0xffffffff;\n"
                                              "  shfl.sync.{}.b32 %r10|%p0, %r0, %r1, %r3, %r4;\n",
                                              mode) +
                                      note_predicate));
    // Half a warp, which keeps to itself.
    kernels.push_back(
        warp_kernel(fmt::format("shfl.sync.{}.b32/half", mode),
                    fmt::format("  setp.lt.u32 %p1, %lane, 16;\n  and.b32 %r1, %r1, 15;\n  @!%p1 bra DONE;\n"
                                "  shfl.sync.{}.b32 %r10|%p0, %r0, %r1, {}, 0x0000ffff;\n",
                                mode, std::string_view(mode) == "up" ? 0x1000 : 0x100f) +
                        note_predicate + "DONE:\n"));
  }
}

void append_votes(std::vector<MicroKernel>& kernels) {
  struct Test {
    const char* name;
    const char* predicate;
  };
  for (const Test& test :
       {Test{"some", "  setp.lt.s32 %p1, %r0, 0;\n"}, Test{"none", "  setp.lt.u32 %p1, %r1, 0;\n"},
        Test{"all", "  setp.ge.u32 %p1, %r1, 0;\n"}, Test{"few", "  setp.eq.u32 %p1, %r1, 7;\n"}}) {
    for (const char* mode : {"all", "any", "uni"}) {
      kernels.push_back(
          warp_kernel(fmt::format("vote.sync.{}.pred/{}", mode, test.name),
                      fmt::format("{}  vote.sync.{}.pred %p0, %p1, 0xffffffff;\n", test.predicate, mode) +
                          note_predicate));
      kernels.push_back(
          warp_kernel(fmt::format("vote.sync.{}.pred.not/{}", mode, test.name),
                      fmt::format("{}  vote.sync.{}.pred %p0, !%p1, 0xffffffff;\n", test.predicate, mode) +
                          note_predicate));
    }
    kernels.push_back(
        warp_kernel(fmt::format("vote.sync.ballot.b32/{}", test.name),
                    fmt::format("{}  vote.sync.ballot.b32 %r10, %p1, 0xffffffff;\n", test.predicate)));
  }
  kernels.push_back(
      warp_kernel("vote.sync.ballot.b32/half",
                  "  setp.lt.s32 %p1, %r0, 0;\n  and.b32 %r3, %lane, 2;\n  setp.eq.u32 %p2, %r3, 0;\n"
                  "  @%p2 bra EVEN;\n  vote.sync.ballot.b32 %r10, %p1, 0xcccccccc;\n  bra DONE;\n"
                  "EVEN:\n  vote.sync.ballot.b32 %r10, !%p1, 0x33333333;\nDONE:\n"));
  for (const char* width : {"b32", "b64"}) {
    const bool wide = std::string_view(width) == "b64";
    const std::string value = wide ? "  mov.b64 %d1, {%r2, %r2};\n" : "";
    const char* operand = wide ? "%d1" : "%r2";
    kernels.push_back(
        warp_kernel(fmt::format("match.any.sync.{}", width),
                    value + fmt::format("  match.any.sync.{} %r10, {}, 0xffffffff;\n", width, operand)));
    kernels.push_back(
        warp_kernel(fmt::format("match.all.sync.{}", width),
                    value + fmt::format("  match.all.sync.{} %r10|%p0, {}, 0xffffffff;\n", width, operand) +
                        note_predicate));
    kernels.push_back(warp_kernel(
        fmt::format("match.all.sync.{}/same", width),
        "  mov.u32 %r2, %warp;\n" + value +
            fmt::format("  match.all.sync.{} %r10|%p0, {}, 0xffffffff;\n", width, operand) + note_predicate));
  }
}

}  // namespace

std::vector<MicroKernel> warp_kernels() {
  std::vector<MicroKernel> kernels;
  append_shuffles(kernels);
  append_votes(kernels);
  for (const char* op :
       {"add.u32", "add.s32", "min.u32", "min.s32", "max.u32", "max.s32", "and.b32", "or.b32", "xor.b32"}) {
    kernels.push_back(
        warp_kernel(fmt::format("redux.sync.{}", op), fmt::format("  redux.sync.{0} %r10, %r0, 0xffffffff;\n"
                                                                  "  redux.sync.{0} %r11, %r1, 0xffffffff;\n",
                                                                  op)));
  }
  kernels.push_back(warp_kernel("redux.sync.add.u32/half",
                                "  setp.lt.u32 %p1, %lane, 11;\n  @%p1 bra LOW;\n"
                                "  redux.sync.add.u32 %r10, %r0, 0xfffff800;\n  bra DONE;\n"
                                "LOW:\n  redux.sync.add.u32 %r10, %r0, 0x7ff;\nDONE:\n"));
  kernels.push_back(warp_kernel("activemask.b32", "  activemask.b32 %r10;\n"));
  kernels.push_back(
      warp_kernel("elect.sync", "  elect.sync %r10|%p0, 0xffffffff;\n" + note_predicate, sm_90a));
  kernels.push_back(warp_kernel("elect.sync/half",
                                "  setp.ge.u32 %p1, %lane, 9;\n  @!%p1 bra DONE;\n"
                                "  elect.sync %r10|%p0, 0xfffffe00;\n" +
                                    note_predicate + "DONE:\n",
                                sm_90a));
  kernels.push_back(warp_kernel(
      "bar.warp.sync",
      "  .shared .align 4 .b8 words[512];\n  mov.u32 %r3, words;\n  mad.lo.u32 %r3, %thread, 4, %r3;\n"
      "  st.shared.b32 [%r3], %r0;\n  bar.warp.sync 0xffffffff;\n  xor.b32 %r4, %r3, 60;\n"
      "  ld.shared.b32 %r10, [%r4];\n"));
  return kernels;
}

}  // namespace jit::conformance
