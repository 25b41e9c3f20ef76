// Barriers in shared memory that count arrivals and bytes (PTX ISA, "Parallel Synchronization and
// Communication Instructions: mbarrier"). A phase is over when the expected arrivals have come and the
// expected bytes have been copied; waiters name the phase by its parity, which begins at 0.
#pragma once

#include "base/prelude.cuh"

namespace jit {

/// A phase of `barrier` (a shared address, 8 bytes) ends after this many arrivals.
JIT_DEVICE void mbarrier_init(unsigned barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

/// Makes the inits before it visible to copies by TMA; a __syncthreads makes them visible to threads.
JIT_DEVICE void fence_mbarrier_init() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

JIT_DEVICE void mbarrier_arrive(unsigned barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/// Under a condition: without a branch, around which the assembler would not mix what stands before and behind.
JIT_DEVICE void mbarrier_arrive_if(bool condition, unsigned barrier) {
  asm volatile(
      "{.reg .pred arrives;\n"
      "setp.ne.u32 arrives, %1, 0;\n"
      "@arrives mbarrier.arrive.shared::cta.b64 _, [%0];\n"
      "}" ::"r"(barrier),
      "r"(static_cast<unsigned>(condition))
      : "memory");
}

/// Arrives behind what `known`, alike in a warp, is made of: the assembler would put that behind waits that come
/// later.
JIT_DEVICE void mbarrier_arrive_if_behind(bool condition, bool known, unsigned barrier) {
  asm volatile(
      "{.reg .pred arrives, is_so, is_not;\n"
      "setp.ne.u32 arrives, %1, 0;\n"
      "setp.ne.and.u32 is_so, %2, 0, arrives;\n"
      "setp.eq.and.u32 is_not, %2, 0, arrives;\n"
      "@is_so mbarrier.arrive.shared::cta.b64 _, [%0];\n"   // mutate: KeysKeptWhereMaximaMove
      "@is_not mbarrier.arrive.shared::cta.b64 _, [%0];\n"  // mutate: KeysKeptWhereMaximaStay
      "}" ::"r"(barrier),
      "r"(static_cast<unsigned>(condition)), "r"(static_cast<unsigned>(known))
      : "memory");
}

/// Arrives, and lets the phase wait for `bytes` more bytes.
JIT_DEVICE void mbarrier_arrive_expect_tx(unsigned barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

/// Lets the phase wait for `bytes` more bytes, in front of the arrival of the one who starts their copy.
JIT_DEVICE void mbarrier_expect_tx(unsigned barrier, int bytes) {
  asm volatile("mbarrier.expect_tx.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

/// Whether the phase of this parity is over. Does not wait.
JIT_DEVICE bool mbarrier_test_parity(unsigned barrier, unsigned parity) {
  unsigned is_over;
  asm volatile(
      "{.reg .pred over;\n"
      "mbarrier.test_wait.parity.shared::cta.b64 over, [%1], %2;\n"
      "selp.u32 %0, 1, 0, over;\n"
      "}"
      : "=r"(is_over)
      : "r"(barrier), "r"(parity)
      : "memory");
  return is_over != 0;
}

/// Waits until the phase of this parity is over. On a fresh barrier parity 1 does not wait.
JIT_DEVICE void mbarrier_wait_parity(unsigned barrier, unsigned parity) {
  asm volatile(
      "{.reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

}  // namespace jit
