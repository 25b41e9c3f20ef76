// Copies of bytes side by side from global to shared memory by the tensor memory accelerator (PTX ISA,
// "cp.async.bulk"): sm_90 and later.
#pragma once

#include "base/prelude.cuh"

namespace jit {

/// Starts the copy of `bytes`, a multiple of 16, between addresses that are; they count at `mbarrier`. By one thread.
__device__ __forceinline__ void cp_async_bulk_load(unsigned smem, const void* gmem, int bytes, unsigned mbarrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(smem), "l"(gmem),
      "r"(bytes), "r"(mbarrier)
      : "memory");
}

}  // namespace jit
