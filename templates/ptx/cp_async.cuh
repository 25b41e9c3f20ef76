// cp.async: copies from global to shared memory that run while the thread goes on (PTX ISA, "cp.async").
#pragma once

#include "base/host_device.cuh"

namespace jit {

// None of them has a cache policy (.L2::cache_hint): the assembler of CUDA 13.0 makes an instruction of it that a GPU
// refuses, where a shared address has a part that all threads share (docs/records/notebook.md).

/// Copies `bytes` (4, 8 or 16) to shared memory. Both addresses are aligned to `bytes`.
/// 16 bytes bypass L1 (.cg): a tile is read once by each block.
template <int bytes>
JIT_DEVICE void cp_async(unsigned smem, const void* gmem) {
  if constexpr (bytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(smem), "l"(gmem) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(smem), "l"(gmem), "n"(bytes) : "memory");
  }
}

/// A copy that reads only the first `source_bytes` and writes zeros for the rest.
template <int bytes>
JIT_DEVICE void cp_async_first(unsigned smem, const void* gmem, int source_bytes) {
  if constexpr (bytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(smem), "l"(gmem), "r"(source_bytes)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(smem), "l"(gmem), "n"(bytes),
                 "r"(source_bytes)
                 : "memory");
  }
}

/// A copy that writes zeros and reads nothing when `valid` is false.
template <int bytes>
JIT_DEVICE void cp_async_zfill(unsigned smem, const void* gmem, bool valid) {
  cp_async_first<bytes>(smem, gmem, valid ? bytes : 0);
}

/// Closes the group of copies issued since the last one; an empty group is legal and completes at once.
JIT_DEVICE void cp_async_commit_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }

/// Waits until at most `pending` of this thread's newest groups are unfinished.
template <int pending>
JIT_DEVICE void cp_async_wait_group() {
  asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

/// Arrives at a barrier once all copies that this thread issued before are complete. The phase counts the arrival as one of
/// those that it was initialized with.
JIT_DEVICE void cp_async_mbarrier_arrive(unsigned barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

}  // namespace jit
