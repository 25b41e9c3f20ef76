// TMA copies for a pair of blocks: each block starts its half, and the bytes of both complete at the leader's barrier,
// since the leader issues the products.
#pragma once

#include "ptx/cluster.cuh"
#include "ptx/mbarrier.cuh"
#include "tiles/box_copy.cuh"

namespace jit {

/// Maps of a tensor whose copies complete at the leader's barrier; `full` is the block's own copy of it.
template <class Map>
struct PairMap {
  const Map of_block;
};

/// The address of the leader's barrier.
JIT_DEVICE unsigned leaders(unsigned barrier) { return cluster_address(barrier, 0); }

JIT_DEVICE void load_panel(unsigned panel, const PairMap<const TensorMap&>& map, unsigned full, int column,
                           const RowPlace& first) {
  cp_async_bulk_tensor_load_of_pair(panel, map.of_block, leaders(full), column, first.seq, first.head,
                                    first.batch);
}
JIT_DEVICE void load_panel(unsigned panel, const PairMap<BoundedMap>& map, unsigned full, int column,
                           const BoundedBox& box) {
  const BoundedMap& own = map.of_block;
  if (box.missing == 0) {
    cp_async_bulk_tensor_load_of_pair(panel, own.whole, leaders(full), column, box.first, box.head,
                                      box.batch);
  } else {
    cp_async_bulk_tensor_load_of_pair(panel, own.part, leaders(full), column, box.missing, box.head,
                                      box.first + own.rows - box.missing, box.batch);
  }
}

/// Announces the bytes of both blocks at the leader's barrier.
template <class Map>
JIT_DEVICE void expect_bytes(const PairMap<Map>&, unsigned full, int bytes) {
  if (cluster_rank() == 0) mbarrier_arrive_expect_tx(full, 2 * bytes);  // mutate: BytesOfOneBlock
}

}  // namespace jit
