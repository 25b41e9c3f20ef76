// Clusters of blocks and their shared memory (PTX ISA, "barrier.cluster", "mapa", "st.async"): from sm_90 on.
#pragma once

#include "base/prelude.cuh"

namespace jit {

/// The block's place in its cluster.
JIT_DEVICE int cluster_rank() {
  unsigned rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return static_cast<int>(rank);
}

/// Says to all blocks of the cluster that this block has begun and that its mbarriers are there, if a fence_mbarrier_init
/// stands behind their inits: nothing else that it has done is visible yet. By all threads of all blocks; a cluster_wait
/// follows.
JIT_DEVICE void cluster_arrive() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }

/// Waits until all threads of the cluster have arrived.
JIT_DEVICE void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

/// Waits until all threads of the cluster have come here, and sees what they did before.
JIT_DEVICE void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
  cluster_wait();
}

/// The address by which block `rank` of the cluster is named what `address` names of the own block.
JIT_DEVICE unsigned cluster_address(unsigned address, int rank) {
  unsigned mapped;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(mapped) : "r"(address), "r"(rank));
  return mapped;
}

/// The word at such an address.
JIT_DEVICE unsigned load_of_cluster(unsigned address) {
  unsigned value;
  asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(value) : "r"(address) : "memory");
  return value;
}

/// Stores to shared memory of a block of the cluster, without waiting: when the numbers are there, their bytes are counted
/// on `barrier`, of the same block.
JIT_DEVICE void store_async(unsigned address, const float4& value, unsigned barrier) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(
          address),
      "f"(value.x), "f"(value.y), "f"(value.z), "f"(value.w), "r"(barrier)
      : "memory");
}
JIT_DEVICE void store_async(unsigned address, const float2& value, unsigned barrier) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(
          address),
      "f"(value.x), "f"(value.y), "r"(barrier)
      : "memory");
}

/// Starts a copy of the own shared memory to that of a block of the cluster (PTX ISA, "cp.async.bulk"): its bytes count at
/// `barrier`, of the same block. Addresses and sizes are multiples of 16. By one thread.
JIT_DEVICE void cp_async_bulk_to_block(unsigned target, unsigned source, int bytes, unsigned barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
          target),
      "r"(source), "r"(bytes), "r"(barrier)
      : "memory");
}

/// Arrives at a barrier of a block of the cluster.
JIT_DEVICE void mbarrier_arrive_cluster(unsigned barrier) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/// Arrives at one whose waiting threads see what this thread did before.
JIT_DEVICE void mbarrier_arrive_release_cluster(unsigned barrier) {
  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/// Waits until the phase of this parity of a barrier of the own block is over, which blocks of the cluster store on.
JIT_DEVICE void mbarrier_wait_parity_cluster(unsigned barrier, unsigned parity) {
  asm volatile(
      "{.reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

}  // namespace jit
