// Copies of bytes side by side between global and shared memory (PTX ISA, "cp.async.bulk", "cp.reduce.async.bulk").
// Addresses and sizes are multiples of 16.
#pragma once

#include "base/prelude.cuh"
#include "base/tensor_strides.cuh"

namespace jit {

// Copies go to the block's own shared memory. Named so, they are one instruction on sm_120, where the assembler makes a
// question and a call of an address in a cluster; before PTX 8.6 there is no such name.
#if __CUDA_ARCH__ >= 1200
#  define JIT_OWN_SHARED "shared::cta"
#else
#  define JIT_OWN_SHARED "shared::cluster"
#endif

/// Starts a copy to shared address `target`; its bytes count at `mbarrier`. By one thread.
JIT_DEVICE void cp_async_bulk_load(unsigned target, const void* source, int bytes, unsigned mbarrier) {
  asm volatile("cp.async.bulk." JIT_OWN_SHARED
               ".global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(target),
               "l"(source), "r"(bytes), "r"(mbarrier)
               : "memory");
}

/// Starts a copy of shared memory to global memory; part of the thread's open bulk group.
JIT_DEVICE void cp_async_bulk_store(void* target, unsigned source, int bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(target), "r"(source),
               "r"(bytes)
               : "memory");
}

/// Starts to add floats of shared memory to those of global memory, each by an atomic addition; part of the thread's
/// open bulk group.
JIT_DEVICE void cp_reduce_async_bulk_add(float* target, unsigned source, int bytes) {
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(target),
               "r"(source), "r"(bytes)
               : "memory");
}

/// Waits until all but the thread's last `pending` bulk groups are done: what they wrote is there.
template <int pending>
JIT_DEVICE void cp_async_bulk_wait_group() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(pending) : "memory");
}

// Copies of boxes between tensors and shared memory by the tensor memory accelerator (PTX ISA,
// "cp.async.bulk.tensor"). Elements outside of the tensor are read as zero and not written.

/// Brings a map near, so that the first copy by it does not wait for it (PTX ISA, "prefetch").
JIT_DEVICE void prefetch_tensor_map(const TensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

/// Asks that the box at (head_dim, seq, head, batch) comes to the L2 cache. By one thread.
JIT_DEVICE void prefetch_bulk_tensor(const TensorMap& map, int head_dim, int seq, int head, int batch) {
  asm volatile("cp.async.bulk.prefetch.tensor.4d.L2.global.tile [%0, {%1, %2, %3, %4}];" ::"l"(&map),
               "r"(head_dim), "r"(seq), "r"(head), "r"(batch)
               : "memory");
}

/// Starts the copy of the box at (head_dim, seq, head, batch) to the shared address `tile`; its bytes count
/// at `mbarrier`. By one thread.
JIT_DEVICE void cp_async_bulk_tensor_load(unsigned tile, const TensorMap& map, unsigned mbarrier,
                                          int head_dim, int seq, int head, int batch) {
  asm volatile("cp.async.bulk.tensor.4d." JIT_OWN_SHARED
               ".global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, "
               "%4, %5}], [%6];" ::"r"(tile),
               "l"(&map), "r"(head_dim), "r"(seq), "r"(head), "r"(batch), "r"(mbarrier)
               : "memory");
}

/// Starts copies of boxes whose bytes count at a barrier of either block of a pair (ptx/tcgen05.cuh), an address in the
/// cluster.
JIT_DEVICE void cp_async_bulk_tensor_load_of_pair(unsigned tile, const TensorMap& map, unsigned mbarrier,
                                                  int head_dim, int seq, int head, int batch) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.cta_group::2 [%0], "
      "[%1, {%2, %3, %4, %5}], [%6];" ::"r"(tile),
      "l"(&map), "r"(head_dim), "r"(seq), "r"(head), "r"(batch), "r"(mbarrier)
      : "memory");
}
JIT_DEVICE void cp_async_bulk_tensor_load_of_pair(unsigned tile, const TensorMap& map, unsigned mbarrier,
                                                  int head_dim, int missing, int head, int row, int batch) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.cta_group::2 [%0], "
      "[%1, {%2, %3, %4, %5, %6}], [%7];" ::"r"(tile),
      "l"(&map), "r"(head_dim), "r"(missing), "r"(head), "r"(row), "r"(batch), "r"(mbarrier)
      : "memory");
}

/// Starts the copy of a box from shared memory; part of the thread's open bulk group.
JIT_DEVICE void cp_async_bulk_tensor_store(const TensorMap& map, unsigned tile, int head_dim, int seq,
                                           int head, int batch) {
  asm volatile(
      "cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%1, %2, %3, %4}], [%5];" ::"l"(&map),
      "r"(head_dim), "r"(seq), "r"(head), "r"(batch), "r"(tile)
      : "memory");
}

/// Copies a box of maps that count rows twice (tiles/bounded_box.cuh): the box at (head_dim, missing, head,
/// row, batch).
JIT_DEVICE void cp_async_bulk_tensor_load(unsigned tile, const TensorMap& map, unsigned mbarrier,
                                          int head_dim, int missing, int head, int row, int batch) {
  asm volatile("cp.async.bulk.tensor.5d." JIT_OWN_SHARED
               ".global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, "
               "%4, %5, %6}], [%7];" ::"r"(tile),
               "l"(&map), "r"(head_dim), "r"(missing), "r"(head), "r"(row), "r"(batch), "r"(mbarrier)
               : "memory");
}
JIT_DEVICE void cp_async_bulk_tensor_store(const TensorMap& map, unsigned tile, int head_dim, int missing,
                                           int head, int row, int batch) {
  asm volatile(
      "cp.async.bulk.tensor.5d.global.shared::cta.tile.bulk_group [%0, {%1, %2, %3, %4, %5}], [%6];" ::"l"(
          &map),
      "r"(head_dim), "r"(missing), "r"(head), "r"(row), "r"(batch), "r"(tile)
      : "memory");
}

JIT_DEVICE void cp_async_bulk_commit_group() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

/// Waits until all but the thread's last `pending` bulk groups have read their shared memory.
template <int pending>
JIT_DEVICE void cp_async_bulk_wait_group_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(pending) : "memory");
}

/// Global and shared memory, as this thread sees them, become visible to copies that it starts.
JIT_DEVICE void fence_proxy_async() { asm volatile("fence.proxy.async;" ::: "memory"); }

/// Writes of this thread to shared memory become visible to TMA and wgmma (PTX ISA, "Async proxy").
JIT_DEVICE void fence_proxy_async_shared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

#undef JIT_OWN_SHARED

}  // namespace jit
