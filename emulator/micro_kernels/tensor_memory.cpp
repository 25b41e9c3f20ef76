#include "micro_kernels/tensor_memory.h"

#include <fmt/format.h>

#include "micro_kernels/blackwell.h"

namespace jit::conformance {

MicroKernel with_tensor_memory(MicroKernel kernel, const std::string& target, int columns,
                               const std::string& shared, const std::string& body) {
  kernel.block = {tensor_threads, 1, 1};
  const std::string begin = fmt::format(
      "  setp.lt.u32 %p20, %thread, 32;\n  setp.eq.u32 %p21, %thread, 0;\n"
      "  mov.u32 %r42, done;\n  mov.u32 %r43, place;\n"
      "  @%p21 mbarrier.init.shared::cta.b64 [%r42], 1;\n"
      "  @%p20 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r43], {};\n"
      "  @%p20 tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;\n"
      "  fence.proxy.async;\n{}"
      "  ld.shared.b32 %r40, [%r43];\n  and.b32 %r41, %thread, 96;\n  shl.b32 %r41, %r41, 16;\n"
      "  add.u32 %r41, %r41, %r40;\n",
      columns, meet());
  const std::string end =
      fmt::format("{}  @%p20 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r40, {};\n", meet(), columns);
  return with_text(std::move(kernel),
                   {.target = target,
                    .body = shared + begin + body + end,
                    .declarations = ".shared .align 8 .b64 done;\n.shared .align 4 .b32 place;\n",
                    .version = blackwell_ptx});
}

std::string fill_columns(int column, int count, int input) {
  std::string text;
  for (int i = 0; i < count; i += 8) {
    for (int j = 0; j < 8; ++j) {
      text += fmt::format("  ld.global.b32 %r{}, [%in{}_at+{}];\n", 50 + j, input,
                          4 * static_cast<int>(tensor_threads) * (i + j));
    }
    text += fmt::format(
        "  tcgen05.st.sync.aligned.32x32b.x8.b32 [%r41+{}], {{%r50, %r51, %r52, %r53, %r54, %r55, %r56, "
        "%r57}};\n",
        column + i);
  }
  return text + "  tcgen05.wait::st.sync.aligned;\n";
}

std::string store_columns(int column, int count) {
  std::string text;
  for (int i = 0; i < count; i += 8) {
    text += fmt::format(
        "  tcgen05.ld.sync.aligned.32x32b.x8.b32 {{%r50, %r51, %r52, %r53, %r54, %r55, %r56, %r57}}, "
        "[%r41+{}];\n  tcgen05.wait::ld.sync.aligned;\n",
        column + i);
    text += store_words(50, 8, tensor_threads, i);
  }
  return text;
}

std::string meet() {
  return "  tcgen05.fence::before_thread_sync;\n  bar.sync 0;\n  tcgen05.fence::after_thread_sync;\n";
}

std::string commit_and_wait() {
  return "  @%p21 tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r42];\n"
         "wait:\n  mbarrier.try_wait.parity.shared::cta.b64 %p22, [%r42], 0;\n  @!%p22 bra wait;\n"
         "  tcgen05.fence::after_thread_sync;\n";
}

std::string make_descriptor(int to, unsigned at, std::uint64_t bits) {
  return fmt::format(
      "  add.u32 %r44, %smem, {1};\n  shr.u32 %r44, %r44, 4;\n  cvt.u64.u32 %d{0}, %r44;\n"
      "  or.b64 %d{0}, %d{0}, {2:#x};\n",
      to, at, bits);
}

std::uint64_t plain_descriptor(unsigned rows) {
  return std::uint64_t{1} << 46 | std::uint64_t{128 / 16} << 32 | std::uint64_t{rows} << 16;
}

}  // namespace jit::conformance
