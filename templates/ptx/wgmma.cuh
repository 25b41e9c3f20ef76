// Ordering of wgmma, and what goes with its operands (PTX ISA, "Asynchronous Warpgroup Level Matrix
// Multiply-Accumulate Instructions"). The multiplications themselves have one operand for each accumulator:
// the generator writes those that a kernel needs into its Config.
#pragma once

#include "base/prelude.cuh"

namespace jit {

/// Before the first wgmma after other instructions wrote its registers.
JIT_DEVICE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

JIT_DEVICE void wgmma_commit_group() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

/// Waits until all but the last `pending` groups are done.
template <int pending>
JIT_DEVICE void wgmma_wait_group() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}

/// wgmma reads and writes registers after the statement that names them: this ties them to the place where it
/// stands, so that the compiler neither moves uses across nor gives them away before. Emits nothing.
template <int blocks>
JIT_DEVICE void wgmma_hold(float (&registers)[blocks][4]) {
  // In pairs: few statements of many operands compile faster.
#pragma unroll
  for (int j = 0; j + 1 < blocks; j += 2) {
    float(&left)[4] = registers[j], (&right)[4] = registers[j + 1];
    asm volatile(""
                 : "+f"(left[0]), "+f"(left[1]), "+f"(left[2]), "+f"(left[3]), "+f"(right[0]), "+f"(right[1]),
                   "+f"(right[2]), "+f"(right[3])::"memory");
  }
  if constexpr (blocks % 2 != 0) {
    float(&last)[4] = registers[blocks - 1];
    asm volatile("" : "+f"(last[0]), "+f"(last[1]), "+f"(last[2]), "+f"(last[3])::"memory");
  }
}
template <int blocks>
JIT_DEVICE void wgmma_hold(unsigned (&registers)[blocks][4]) {
#pragma unroll
  for (int j = 0; j < blocks; ++j) {
    asm volatile(""
                 : "+r"(registers[j][0]), "+r"(registers[j][1]), "+r"(registers[j][2]),
                   "+r"(registers[j][3])::"memory");
  }
}

}  // namespace jit
