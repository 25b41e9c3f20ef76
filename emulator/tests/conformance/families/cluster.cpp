// Clusters: distributed shared memory, barriers across blocks, multicast (PTX ISA, "Cooperative Thread
// Arrays: Cluster", "mapa", "getctarank", "barrier.cluster", "st.async", "griddepcontrol", "setmaxnreg").
#include <string>

#include <fmt/format.h>

#include "micro_kernels/kernel_text.h"
#include "tests/conformance/families/families.h"

namespace jit::conformance {
namespace {

constexpr unsigned threads = 64;

// Two clusters of `size` blocks. Each thread has a word of shared memory at %r20, %gate is a barrier of one
// arrival, %peer the next block of the cluster; %r0 is a random word, %r10 and %r11 are stored.
MicroKernel cluster_kernel(std::string name, unsigned size, const std::string& body, unsigned arrivals = 1) {
  MicroKernel kernel;
  kernel.name = std::move(name);
  kernel.grid = {2 * size, 1, 1};
  kernel.block = {threads, 1, 1};
  kernel.cluster = {size, 1, 1};
  kernel.inputs = {{.element = Element::i32, .pattern = Pattern::bits, .count = 2 * size * threads}};
  kernel.output = words(2 * 2 * size * threads);
  const std::string prologue = fmt::format(
      "  .shared .align 16 .b8 words[1024];\n  .shared .align 8 .b8 gates[8];\n  .reg .b32 %gate, %peer, "
      "%mine;\n"
      "  mov.u32 %r21, words;\n  mad.lo.u32 %r20, %thread, 4, %r21;\n  mov.u32 %gate, gates;\n  setp.eq.u32 "
      "%p31, %thread, 0;\n"
      "  mov.u32 %mine, %cluster_ctarank;\n  add.u32 %peer, %mine, 1;\n  setp.eq.u32 %p30, %peer, {0};\n"
      "  @%p30 mov.u32 %peer, 0;\n  @%p31 mbarrier.init.shared.b64 [%gate], {1};\n  "
      "fence.mbarrier_init.release.cluster;\n"
      "  mov.b32 %r10, 0;\n  mov.b32 %r11, 0;\n",
      size, arrivals);
  const unsigned all = threads_of(kernel);
  return with_text(std::move(kernel), {.target = sm_90a,
                                       .body = prologue + load_words(0, 1, 0, all) + body +
                                               "  barrier.cluster.arrive.aligned;\n"
                                               "  barrier.cluster.wait.aligned;\n" +
                                               store_words(10, 2, all)});
}

const std::string all_there =
    "  barrier.cluster.arrive.release.aligned;\n  barrier.cluster.wait.acquire.aligned;\n";
const std::string wait_gate =
    "WAIT:\n  mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p9, [%gate], 0;\n  @!%p9 bra WAIT;\n";

MicroKernel special_registers() {
  constexpr const char* names[] = {
      "%clusterid.x",      "%clusterid.y",      "%nclusterid.x",     "%nclusterid.y",     "%cluster_ctaid.x",
      "%cluster_ctaid.y",  "%cluster_nctaid.x", "%cluster_nctaid.y", "%cluster_nctaid.z", "%cluster_ctarank",
      "%cluster_nctarank", "%ctaid.x",          "%ctaid.y"};
  MicroKernel kernel;
  kernel.name = "mov.u32.cluster";
  kernel.grid = {4, 6, 1};
  kernel.cluster = {2, 2, 1};
  kernel.block = {32, 1, 1};
  kernel.output = words(24 * std::size(names));
  std::string body = fmt::format(
      "  setp.ne.u32 %p0, %thread, 0;\n  @%p0 bra DONE;\n  mov.u32 %r1, %ctaid.y;\n  mad.lo.u32 %r1, %r1, 4, "
      "%rank;\n"
      "  mad.wide.u32 %d1, %r1, {}, %out;\n",
      4 * std::size(names));
  unsigned column = 0;
  for (const char* name : names)
    body += fmt::format("  mov.u32 %r2, {};\n  st.global.b32 [%d1+{}], %r2;\n", name, 4 * column++);
  return with_text(std::move(kernel), {.target = sm_90a, .body = body + "DONE:\n"});
}

// One block's copy of a box arrives in every block that the mask names.
MicroKernel multicast(unsigned mask) {
  MicroKernel kernel;
  kernel.name = fmt::format("cp.async.bulk.tensor.2d.multicast::cluster/{:#x}", mask);
  kernel.grid = {4, 1, 1};
  kernel.cluster = {4, 1, 1};
  kernel.block = {32, 1, 1};
  kernel.dynamic_smem = 1024;
  kernel.inputs = {{.element = Element::f16, .pattern = Pattern::bits, .count = 64 * 32},
                   {.element = Element::i32, .pattern = Pattern::zeros, .count = 256}};
  kernel.output = words(4 * 256);
  kernel.maps = {{.type = TensorElement::f16,
                  .sizes = {64, 32},
                  .strides = {128},
                  .box = {64, 8},
                  .swizzle = TensorSwizzle::bytes128}};
  const std::string body = fmt::format(
      "  .shared .align 8 .b8 gates[8];\n  .reg .b32 %gate;\n  mov.u32 %gate, gates;\n  setp.eq.u32 %p31, "
      "%thread, 0;\n"
      "  @%p31 mbarrier.init.shared.b64 [%gate], 1;\n{0}  fence.mbarrier_init.release.cluster;\n  "
      "fence.proxy.async;\n"
      "  shr.u32 %r5, {1}, %rank;\n  and.b32 %r5, %r5, 1;\n  setp.eq.u32 %p1, %r5, 1;\n  selp.b32 %r5, 1024, "
      "0, %p1;\n"
      "  @%p31 mbarrier.arrive.expect_tx.shared.b64 _, [%gate], %r5;\n"
      "  barrier.cluster.arrive.aligned;\n  barrier.cluster.wait.aligned;\n"
      "  setp.eq.and.u32 %p2, %rank, 1, %p31;\n  mov.b16 %h1, {1};\n"
      "  @%p2 cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%smem], [%map0, {{0, 5}}], [%gate], %h1;\n"
      "WAIT:\n  mbarrier.try_wait.parity.shared.b64 %p9, [%gate], 0;\n  @!%p9 bra WAIT;\n"
      "  barrier.cluster.arrive.aligned;\n  barrier.cluster.wait.aligned;\n",
      fill_shared(0, 1, 0, 1024, 32), mask);
  return with_text(std::move(kernel), {.target = sm_90a, .body = body + store_shared(0, 0, 1024, 32)});
}

}  // namespace

std::vector<MicroKernel> cluster_kernels() {
  std::vector<MicroKernel> kernels = {special_registers(), multicast(0xf), multicast(0x5), multicast(0x2)};
  kernels.push_back(cluster_kernel(
      "mapa.shared::cluster.u32", 4,
      "  st.shared.b32 [%r20], %r0;\n" + all_there +
          "  mapa.shared::cluster.u32 %r1, %r20, %peer;\n  ld.shared::cluster.b32 %r10, [%r1];\n"
          "  getctarank.shared::cluster.u32 %r11, %r1;\n"));
  kernels.push_back(cluster_kernel(
      "mapa.u64", 2,
      "  st.shared.b32 [%r20], %r0;\n" + all_there +
          "  cvt.u64.u32 %d1, %r20;\n  cvta.shared.u64 %d1, %d1;\n  mapa.u64 %d2, %d1, %peer;\n"
          "  ld.b32 %r10, [%d2];\n  getctarank.u64 %r11, %d2;\n"));
  kernels.push_back(cluster_kernel("mapa.variable", 2,
                                   "  st.shared.b32 [%r20], %r0;\n" + all_there +
                                       "  mapa.shared::cluster.u32 %r1, words, %peer;\n  "
                                       "ld.shared::cluster.v2.b32 {%r10, %r11}, [%r1+16];\n"));
  kernels.push_back(cluster_kernel(
      "st.shared::cluster", 4,
      all_there + "  mapa.shared::cluster.u32 %r1, %r20, %peer;\n  st.shared::cluster.b32 [%r1], %r0;\n" +
          all_there + "  ld.shared.b32 %r10, [%r20];\n"));
  kernels.push_back(cluster_kernel("atom.shared::cluster", 2,
                                   "  st.shared.b32 [%r20], %r0;\n" + all_there +
                                       "  mapa.shared::cluster.u32 %r1, %r20, %peer;\n"
                                       "  atom.shared::cluster.add.u32 %r10, [%r1], %thread;\n  "
                                       "red.relaxed.cluster.shared::cluster.xor.b32 [%r1], 21;\n" +
                                       all_there + "  ld.shared.b32 %r11, [%r20];\n"));
  kernels.push_back(cluster_kernel(
      "barrier.cluster.relaxed", 2,
      "  st.shared.b32 [%r20], %r0;\n  fence.acq_rel.cluster;\n  barrier.cluster.arrive.relaxed;\n"
      "  barrier.cluster.wait;\n  mapa.shared::cluster.u32 %r1, %r20, %peer;\n"
      "  ld.shared::cluster.b32 %r10, [%r1];\n"));
  kernels.push_back(cluster_kernel(
      "mbarrier.arrive.shared::cluster", 4,
      all_there +
          "  mapa.shared::cluster.u32 %r1, %gate, %peer;\n  mapa.shared::cluster.u32 %r2, %r20, %peer;\n"
          "  st.shared::cluster.b32 [%r2], %r0;\n  mbarrier.arrive.release.cluster.shared::cluster.b64 _, "
          "[%r1];\n" +
          wait_gate + "  ld.shared.b32 %r10, [%r20];\n",
      threads));
  kernels.push_back(cluster_kernel(
      "mbarrier.arrive.expect_tx.shared::cluster", 2,
      all_there +
          "  mapa.shared::cluster.u32 %r1, %gate, %peer;\n"
          "  @%p31 mbarrier.arrive.expect_tx.release.cluster.shared::cluster.b64 _, [%r1], 8;\n"
          "  @%p31 mbarrier.complete_tx.relaxed.cluster.shared::cluster.b64 [%r1], 8;\n" +
          wait_gate + "  mov.b32 %r10, 4;\n"));
  kernels.push_back(cluster_kernel(
      "st.async", 2,
      "  @%p31 mbarrier.arrive.expect_tx.shared.b64 _, [%gate], 768;\n" + all_there +
          "  mapa.shared::cluster.u32 %r1, %gate, %peer;\n  mapa.shared::cluster.u32 %r2, %r20, %peer;\n"
          "  mad.lo.u32 %r3, %thread, 8, %r21;\n  mapa.shared::cluster.u32 %r3, %r3, %peer;\n  add.u32 %r4, "
          "%r0, 1;\n"
          "  st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%r2], %r0, [%r1];\n"
          "  st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%r3+256], {%r4, %thread}, "
          "[%r1];\n" +
          wait_gate + "  ld.shared.b32 %r10, [%r20];\n  ld.shared.b32 %r11, [%r20+256];\n"));
  kernels.push_back(
      cluster_kernel("cp.async.bulk.shared::cluster.shared::cta", 2,
                     "  st.shared.b32 [%r20], %r0;\n  fence.proxy.async.shared::cta;\n"
                     "  @%p31 mbarrier.arrive.expect_tx.shared.b64 _, [%gate], 256;\n" +
                         all_there +
                         "  mapa.shared::cluster.u32 %r1, %gate, %peer;\n  add.u32 %r2, %r21, 512;\n  "
                         "mapa.shared::cluster.u32 %r2, %r2, %peer;\n"
                         "  @%p31 cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes "
                         "[%r2], [%r21], 256, [%r1];\n" +
                         wait_gate + "  ld.shared.b32 %r10, [%r20+512];\n"));
  kernels.push_back(
      cluster_kernel("griddepcontrol", 2,
                     "  griddepcontrol.wait;\n  mov.b32 %r10, %r0;\n  griddepcontrol.launch_dependents;\n"));
  MicroKernel registers;
  registers.name = "setmaxnreg";
  registers.block = {256, 1, 1};
  registers.registers = 64;
  registers.inputs = {{.element = Element::i32, .pattern = Pattern::bits, .count = 256}};
  registers.output = words(256);
  kernels.push_back(with_text(
      std::move(registers),
      {.target = sm_90a,
       .body = "  ld.global.b32 %r0, [%in0_at];\n  setp.ge.u32 %p0, %thread, 128;\n  @%p0 bra MORE;\n"
               "  setmaxnreg.dec.sync.aligned.u32 40;\n  add.u32 %r0, %r0, 1;\n  bra DONE;\n"
               "MORE:\n  setmaxnreg.inc.sync.aligned.u32 88;\n  add.u32 %r0, %r0, 2;\nDONE:\n"
               "  st.global.b32 [%out_at], %r0;\n",
       .directives = ".reqntid 256, 1, 1\n.maxnreg 64\n"}));
  return kernels;
}

}  // namespace jit::conformance
