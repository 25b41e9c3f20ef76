// Copies of bytes side by side between global and shared memory (PTX ISA, "cp.async.bulk", "cp.reduce.async.bulk").
// Addresses and sizes are multiples of 16.
#pragma once

namespace jit {

/// Starts a copy to shared address `target`; its bytes count at `mbarrier`. By one thread.
__device__ __forceinline__ void cp_async_bulk_load(unsigned target, const void* source, int bytes,
                                                   unsigned mbarrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(target),
      "l"(source), "r"(bytes), "r"(mbarrier)
      : "memory");
}

/// Starts a copy of shared memory to global memory; part of the thread's open bulk group.
__device__ __forceinline__ void cp_async_bulk_store(void* target, unsigned source, int bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(target), "r"(source),
               "r"(bytes)
               : "memory");
}

/// Starts to add floats of shared memory to those of global memory, each by an atomic addition; part of the thread's
/// open bulk group.
__device__ __forceinline__ void cp_reduce_async_bulk_add(float* target, unsigned source, int bytes) {
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(target),
               "r"(source), "r"(bytes)
               : "memory");
}

/// Waits until all but the thread's last `pending` bulk groups are done: what they wrote is there.
template <int pending>
__device__ __forceinline__ void cp_async_bulk_wait_group() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(pending) : "memory");
}

}  // namespace jit
