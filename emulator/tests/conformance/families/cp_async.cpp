// Copies without bulk (PTX ISA, "Data Movement and Conversion Instructions: Non-bulk copy").
#include <string>

#include <fmt/format.h>

#include "micro_kernels/kernel_text.h"
#include "tests/conformance/families/families.h"

namespace jit::conformance {
namespace {

constexpr unsigned threads = 32;
constexpr unsigned stages = 4;
constexpr unsigned stage_bytes = 16 * threads;

// Each thread copies 16 bytes for each of four stages from %d1 to %r20, into shared memory full of ones, then
// all of that is stored.
MicroKernel copy_kernel(std::string name, const std::string& body) {
  MicroKernel kernel;
  kernel.name = std::move(name);
  kernel.block = {threads, 1, 1};
  kernel.dynamic_smem = stages * stage_bytes;
  kernel.inputs = {
      {.element = Element::i32, .pattern = Pattern::bits, .count = stages * stage_bytes / 4},
      {.element = Element::i32, .pattern = Pattern::range, .count = threads, .low = 0, .high = 16}};
  kernel.output = words(stages * stage_bytes / 4);
  std::string prologue =
      "  mad.lo.u32 %r20, %thread, 16, %smem;\n  mad.wide.u32 %d1, %thread, 16, %in0;\n  mov.b32 %r5, -1;\n";
  for (unsigned stage = 0; stage < stages; ++stage) {
    prologue += fmt::format("  st.shared.v4.b32 [%r20+{}], {{%r5, %r5, %r5, %r5}};\n", stage * stage_bytes);
  }
  prologue += "  bar.sync 0;\n  ld.global.b32 %r6, [%in1_at];\n";
  return with_text(std::move(kernel), {.target = sm_80,
                                       .body = prologue + body + "  bar.sync 0;\n" +
                                               store_shared(0, 0, stages * stage_bytes, threads)});
}

const std::string wait_all = "  cp.async.wait_all;\n";

}  // namespace

std::vector<MicroKernel> cp_async_kernels() {
  std::vector<MicroKernel> kernels;
  for (const int bytes : {4, 8, 16}) {
    kernels.push_back(
        copy_kernel(fmt::format("cp.async.ca.shared.global/{}", bytes),
                    fmt::format("  cp.async.ca.shared.global [%r20], [%d1], {};\n", bytes) + wait_all));
    for (int size = 0; size <= bytes; size += 4) {
      kernels.push_back(copy_kernel(
          fmt::format("cp.async.ca.shared.global/{}.of.{}", size, bytes),
          fmt::format("  cp.async.ca.shared.global [%r20+512], [%d1+512], {}, {};\n", bytes, size) +
              wait_all));
    }
    // The number of bytes in a register, another in each thread.
    kernels.push_back(copy_kernel(
        fmt::format("cp.async.ca.shared.global/size.{}", bytes),
        fmt::format("  min.u32 %r7, %r6, {0};\n  cp.async.ca.shared.global [%r20+1024], [%d1], {0}, %r7;\n",
                    bytes) +
            wait_all));
    kernels.push_back(copy_kernel(
        fmt::format("cp.async.ca.shared.global/ignore.{}", bytes),
        fmt::format("  setp.lt.u32 %p0, %r6, 8;\n  cp.async.ca.shared.global [%r20+1024], [%d1], {}, %p0;\n",
                    bytes) +
            wait_all));
  }
  kernels.push_back(copy_kernel("cp.async.cg.shared.global",
                                "  cp.async.cg.shared.global [%r20], [%d1], 16;\n" + wait_all));
  kernels.push_back(copy_kernel("cp.async.cg.shared.global/size",
                                "  cp.async.cg.shared.global [%r20], [%d1], 16, %r6;\n" + wait_all));
  kernels.push_back(copy_kernel("cp.async.cg.shared.global.L2::128B",
                                "  cp.async.cg.shared.global.L2::128B [%r20+1536], [%d1], 16;\n" + wait_all));
  kernels.push_back(copy_kernel("cp.async.cg.shared.global.L2::cache_hint",
                                "  createpolicy.fractional.L2::evict_first.b64 %d5, 1.0;\n"
                                "  cp.async.cg.shared.global.L2::cache_hint [%r20], [%d1], 16, %d5;\n" +
                                    wait_all));
  kernels.push_back(copy_kernel(
      "cp.async.ca.shared.global/guard",
      "  setp.lt.u32 %p0, %r6, 8;\n  @%p0 cp.async.ca.shared.global [%r20], [%d1], 16;\n" + wait_all));

  std::string groups;
  for (unsigned stage = 0; stage < stages; ++stage) {
    groups +=
        fmt::format("  cp.async.cg.shared.global [%r20+{0}], [%d1+{0}], 16;\n  cp.async.commit_group;\n",
                    stage * stage_bytes);
  }
  kernels.push_back(copy_kernel("cp.async.wait_group/0", groups + "  cp.async.wait_group 0;\n"));
  // The copies of two groups are mixed before the others are waited for.
  kernels.push_back(copy_kernel(
      "cp.async.wait_group/2",
      groups + "  cp.async.wait_group 2;\n  ld.shared.b32 %r8, [%r20];\n  ld.shared.b32 %r9, [%r20+512];\n"
               "  xor.b32 %r8, %r8, %r9;\n  st.shared.b32 [%r20], %r8;\n  cp.async.wait_group 0;\n"));
  kernels.push_back(
      copy_kernel("cp.async.commit_group/empty",
                  "  cp.async.cg.shared.global [%r20], [%d1], 16;\n  cp.async.commit_group;\n"
                  "  cp.async.commit_group;\n  cp.async.commit_group;\n  cp.async.wait_group 2;\n"
                  "  ld.shared.b32 %r8, [%r20];\n  st.shared.b32 [%r20+512], %r8;\n"));
  for (const char* arrive : {"cp.async.mbarrier.arrive", "cp.async.mbarrier.arrive.noinc"}) {
    const bool counts = std::string_view(arrive).ends_with("noinc");
    // Without noinc the arrival is one that the thread itself has announced, so each arrives once more.
    kernels.push_back(
        copy_kernel(fmt::format("{}.shared.b64", arrive),
                    fmt::format("  .shared .align 8 .b8 gate[8];\n  setp.eq.u32 %p0, %thread, 0;\n"
                                "  @%p0 mbarrier.init.shared.b64 [gate], 32;\n  bar.sync 0;\n"
                                "  cp.async.ca.shared.global [%r20], [%d1], 16;\n  {}.shared.b64 [gate];\n{}"
                                "  mov.u32 %r9, gate;\nWAIT:\n  mbarrier.test_wait.parity.shared.b64 %p1, "
                                "[%r9], 0;\n  @!%p1 bra WAIT;\n",
                                arrive, counts ? "" : "  mbarrier.arrive.shared.b64 %d6, [gate];\n")));
    kernels.back().ptx =
        replace_all(kernels.back().ptx, "mbarrier.test_wait.parity", "mbarrier.try_wait.parity");
    kernels.back().ptx = replace_all(kernels.back().ptx, ".target sm_80", ".target sm_90a");
  }
  return kernels;
}

}  // namespace jit::conformance
