// Rows of keys that two blocks of a cluster, a pair, both multiply: each converts half of a tile's, and sends them to the other
// ("crossover" of FlashMLA's sparse decoding).
#pragma once

#include "base/prelude.cuh"
#include "ptx/bulk_copy.cuh"
#include "ptx/cluster.cuh"

namespace jit {

/// Starts a copy of own rows to the same place of the other block; their bytes count at its barrier there. By one thread.
JIT_DEVICE void send_to_peer(unsigned rows, int bytes, unsigned full) {
  const int peer = cluster_rank() ^ 1;
  cp_async_bulk_to_block(cluster_address(rows, peer), rows, bytes, cluster_address(full, peer));
}

/// Releases, in both blocks, since both write it, the stage of keys that a warp has read, or that of `back` stages ago.
template <class Traits, class Pipeline>
JIT_DEVICE void release_keys(const Pipeline& pipeline) {
  pipeline.consumer_release();
  if constexpr (Traits::is_pair) pipeline.consumer_release_before_to(0, cluster_rank() ^ 1);
}
template <class Traits, class Pipeline>
JIT_DEVICE void release_keys(const Pipeline& pipeline, int back) {
  pipeline.consumer_release_before(back);
  if constexpr (Traits::is_pair)
    pipeline.consumer_release_before_to(back, cluster_rank() ^ 1);  // mutate: RowsOverThoseOfThePeer
}

}  // namespace jit
