// Bulk copies of plain bytes (PTX ISA, "cp.async.bulk", "cp.reduce.async.bulk", "cp.async.bulk.prefetch").
#include <string>

#include <fmt/format.h>

#include "micro_kernels/kernel_text.h"
#include "tests/conformance/families/families.h"

namespace jit::conformance {
namespace {

constexpr unsigned threads = 64;
constexpr unsigned smem_bytes = 2048;

const std::string make_gate =
    "  .shared .align 8 .b8 gates[8];\n  .reg .b32 %gate;\n  mov.u32 %gate, gates;\n  setp.eq.u32 %p31, "
    "%thread, 0;\n"
    "  @%p31 mbarrier.init.shared.b64 [%gate], 1;\n  fence.proxy.async.shared::cta;\n  bar.sync 0;\n";
const std::string wait_gate =
    "WAIT:\n  mbarrier.try_wait.parity.shared.b64 %p9, [%gate], 0;\n  @!%p9 bra WAIT;\n";

// One thread brings bytes in, all store what is in shared memory then.
MicroKernel load_kernel(std::string name, unsigned bytes, const std::string& copies) {
  MicroKernel kernel;
  kernel.name = std::move(name);
  kernel.block = {threads, 1, 1};
  kernel.dynamic_smem = smem_bytes;
  kernel.inputs = {{.element = Element::i32, .pattern = Pattern::bits, .count = smem_bytes / 4},
                   {.element = Element::i32, .pattern = Pattern::bits, .count = smem_bytes / 4}};
  kernel.output = words(smem_bytes / 4);
  const std::string body =
      fill_shared(0, 1, 0, smem_bytes, threads) + make_gate +
      fmt::format("  @!%p31 bra ISSUED;\n  mbarrier.arrive.expect_tx.shared.b64 _, [%gate], {};\n", bytes) +
      copies + "ISSUED:\n" + wait_gate + "  bar.sync 0;\n" + store_shared(0, 0, smem_bytes, threads);
  return with_text(std::move(kernel), {.target = sm_90a, .body = body});
}

// One thread sends what all have written.
MicroKernel store_kernel(std::string name, Element element, Pattern pattern, const std::string& copies) {
  MicroKernel kernel;
  kernel.name = std::move(name);
  kernel.block = {threads, 1, 1};
  kernel.dynamic_smem = smem_bytes;
  kernel.inputs = {{.element = element, .pattern = pattern, .count = smem_bytes / bytes_of(element)}};
  kernel.output = kernel.inputs[0];
  kernel.comparison.element = element;
  const std::string body = fill_shared(0, 0, 0, smem_bytes, threads) +
                           "  fence.proxy.async.shared::cta;\n  bar.sync 0;\n  setp.ne.u32 %p31, %thread, "
                           "0;\n  @%p31 bra DONE;\n" +
                           copies + "  cp.async.bulk.commit_group;\n  cp.async.bulk.wait_group 0;\nDONE:\n";
  return with_text(std::move(kernel), {.target = sm_90a, .body = body});
}

}  // namespace

std::vector<MicroKernel> bulk_kernels() {
  std::vector<MicroKernel> kernels;
  const std::string load = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes";
  kernels.push_back(load_kernel(load, 1024, "  " + load + " [%smem], [%in0], 1024, [%gate];\n"));
  kernels.push_back(load_kernel(load + "/parts", 16 + 48 + 1024,
                                "  " + load + " [%smem+16], [%in0+64], 16, [%gate];\n  " + load +
                                    " [%smem+64], [%in0+128], 48, [%gate];\n  mov.u32 %r5, 1024;\n  " + load +
                                    " [%smem+1024], [%in0], %r5, [%gate];\n"));
  kernels.push_back(load_kernel(load + ".L2::cache_hint", 256,
                                "  createpolicy.fractional.L2::evict_first.b64 %d5, 1.0;\n  " + load +
                                    ".L2::cache_hint [%smem], [%in0], 256, [%gate], %d5;\n"));
  kernels.push_back(load_kernel("cp.async.bulk.prefetch.L2.global", 128,
                                "  cp.async.bulk.prefetch.L2.global [%in0], 1024;\n  " + load +
                                    " [%smem], [%in0+512], 128, [%gate];\n"));
  const std::string store = "cp.async.bulk.global.shared::cta.bulk_group";
  kernels.push_back(store_kernel(store, Element::i32, Pattern::bits,
                                 "  " + store + " [%out], [%smem], 512;\n  " + store +
                                     " [%out+1024], [%smem+528], 16;\n  " + store +
                                     " [%out+1280], [%smem+512], 768;\n"));
  kernels.push_back(store_kernel(
      "cp.async.bulk.wait_group.read", Element::i32, Pattern::bits,
      "  " + store +
          " [%out], [%smem], 512;\n  cp.async.bulk.commit_group;\n  cp.async.bulk.wait_group.read 0;\n"
          "  mov.b32 %r7, 77;\n  st.shared.b32 [%smem], %r7;\n  " +
          store + " [%out+1024], [%smem+512], 512;\n"));
  kernels.push_back(store_kernel(
      "cp.async.bulk.commit_group", Element::i32, Pattern::bits,
      "  " + store + " [%out], [%smem], 512;\n  cp.async.bulk.commit_group;\n  " + store +
          " [%out+1024], [%smem+512], 512;\n  cp.async.bulk.commit_group;\n  cp.async.bulk.wait_group 1;\n"));

  struct Reduction {
    const char* suffix;
    Element element;
  };
  for (const Reduction& reduction :
       {Reduction{"add.u32", Element::i32},         Reduction{"add.s32", Element::i32},
        Reduction{"add.u64", Element::i64},         Reduction{"min.u32", Element::i32},
        Reduction{"max.s32", Element::i32},         Reduction{"min.s64", Element::i64},
        Reduction{"max.u64", Element::i64},         Reduction{"inc.u32", Element::i32},
        Reduction{"dec.u32", Element::i32},         Reduction{"and.b32", Element::i32},
        Reduction{"or.b32", Element::i32},          Reduction{"xor.b32", Element::i32},
        Reduction{"and.b64", Element::i64},         Reduction{"add.f32", Element::f32},
        Reduction{"add.f64", Element::f64},         Reduction{"add.noftz.f16", Element::f16},
        Reduction{"add.noftz.bf16", Element::bf16}, Reduction{"min.f16", Element::f16},
        Reduction{"max.f16", Element::f16},         Reduction{"min.bf16", Element::bf16},
        Reduction{"max.bf16", Element::bf16}}) {
    const std::string name =
        fmt::format("cp.reduce.async.bulk.global.shared::cta.bulk_group.{}", reduction.suffix);
    MicroKernel kernel =
        store_kernel(name, reduction.element, Pattern::edges, "  " + name + " [%out], [%smem], 2048;\n");
    kernel.inputs[0].operand = 1;
    kernel.comparison.element = reduction.element;
    kernel.comparison.any_nan = reduction.element == Element::f64;
    kernels.push_back(std::move(kernel));
  }
  return kernels;
}

}  // namespace jit::conformance
