// Rows of keys that two blocks of a cluster, a pair, both multiply: each converts half of a tile's, and stores them in
// both ("crossover" of FlashMLA's sparse decoding).
#pragma once

#include "base/prelude.cuh"
#include "ptx/cluster.cuh"

namespace jit {

/// Stores 16 bytes to the same place of the other block, without waiting: they count at its barrier there.
JIT_DEVICE void store_to_peer(unsigned address, const unsigned (&words)[4], unsigned full) {
  const int peer = cluster_rank() ^ 1;
  store_async(cluster_address(address, peer),
              make_float4(__uint_as_float(words[0]), __uint_as_float(words[1]), __uint_as_float(words[2]),
                          __uint_as_float(words[3])),
              cluster_address(full, peer));
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
