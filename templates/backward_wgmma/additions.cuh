// How blocks add to a part of a tile of dQ, in global memory. The first one stores, so that there need be no zeros; the
// others wait until that is there. Whoever adds last knows that the sum is complete. A part has a word for it:
//
//     bits 63 … 32    tiles of keys that add to it, from prepare.cuh
//     bits 31 … 1     those that have added
//     bit 0           whether the first one has come
//
// The first one stores what it holds already, so that the others' wait is short and no circle.
#pragma once

#include "ptx/atomic.cuh"
#include "ptx/bulk_tensor.cuh"

namespace jit::backward_wgmma {

using Additions = unsigned long long;

__device__ __forceinline__ Additions no_additions_of(int key_tiles) {
  return static_cast<Additions>(key_tiles) << 32;
}
__device__ __forceinline__ unsigned count_of(Additions additions) {
  return static_cast<unsigned>(additions) / 2;
}

/// Whether the block is the first, which must store. Else what the first one has stored is there. By one thread.
__device__ __forceinline__ bool begin_addition(Additions* additions) {
  constexpr Additions has_first = 1;
  Additions seen = atomic_or_acquire(additions, has_first);
  if ((seen & has_first) == 0) return true;
  while (count_of(seen) == 0) seen = load_acquire(additions);
  fence_proxy_async();
  return false;
}

/// Waits until `turn` blocks have added, where the order is fixed. By one thread.
__device__ __forceinline__ void wait_for_turn(const Additions* additions, int turn) {
  while (count_of(load_acquire(additions)) != static_cast<unsigned>(turn)) {
  }
  fence_proxy_async();
}

/// To be called by a thread when what its block adds or stores is there and in its past. Whether the sum is complete;
/// then all of it is in the thread's past.
__device__ __forceinline__ bool end_addition(Additions* additions) {
  constexpr Additions one = 2;
  const Additions before = atomic_add_acq_rel(additions, one);
  return count_of(before) + 1 == static_cast<unsigned>(before >> 32);
}

}  // namespace jit::backward_wgmma
