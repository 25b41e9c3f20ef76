// Merges the splits of a work tile over a cluster: each block ends some columns of the rows. All blocks send it their
// partial results of these columns, and it merges when all have arrived.
//
// No block reads another block's memory, so a block may end as soon as it has received its pieces: a sender does not
// wait, and pieces arrive before their receiver ends.
#pragma once

#include "base/prelude.cuh"
#include "forward_split_cluster/traits.cuh"
#include "ptx/cluster.cuh"
#include "ptx/mbarrier.cuh"
#include "split_keys/block_results.cuh"
#include "tiles/tile_copy.cuh"

namespace jit::forward_split_cluster {

template <class Traits>
class ReceiveBuffer {
  using Config = typename Traits::Config;
  static constexpr int cluster = Config::cluster;
  static constexpr int places = most_own_pieces(Config::head_dim_v, cluster);
  static constexpr int piece_bytes = sizeof(float4) + sizeof(float2);

 public:
  JIT_DEVICE ReceiveBuffer(unsigned char* bytes, int rank)
      : bytes_(bytes), smem_(smem_address(bytes)), rank_(rank) {}

  /// By one thread, before the cluster meets.
  JIT_DEVICE void init() const {
    mbarrier_init(barrier(), 1);
    fence_mbarrier_init();  // mutate: ReceiveBuffersWithoutFence
  }

  /// Lets the block wait for its share of so many pieces. By the same thread.
  JIT_DEVICE void expect(int pieces) const {
    constexpr int round = cluster * pieces_together;
    const int rest = pieces % round - rank_ * pieces_together;
    const int own = pieces / round * pieces_together + maximum(0, minimum(rest, pieces_together));
    mbarrier_arrive_expect_tx(barrier(), own * cluster * piece_bytes);  // mutate: EndsBeforeAllHasCome
  }

  /// Sends a piece to the block that ends it. Requires: the cluster has met.
  JIT_DEVICE void send(int index, const RowPiece& piece) const {
    const int group = index / pieces_together, owner = group % cluster;
    const int place = rank_ * places + group / cluster * pieces_together + index % pieces_together;
    const unsigned there = cluster_address(smem_, owner), counts = there + Traits::layout.barrier;
    store_async(there + Traits::layout.receive_buffer_values + place * sizeof(float4), piece.values, counts);
    store_async(there + Traits::layout.receive_buffer_states + place * sizeof(float2),
                make_float2(piece.state.max, piece.state.sum), counts);
  }

  JIT_DEVICE void wait() const { mbarrier_wait_parity_cluster(barrier(), 0); }

  /// The index of a piece in its tile of rows, of those that the block ends.
  JIT_DEVICE int index(int place) const {
    // mutate: OneOwnerForTwo
    return (place / pieces_together * cluster + rank_) * pieces_together + place % pieces_together;
  }

  // The results that the blocks have sent, in the order of their ranks, for merge_piece.
  static constexpr int count = cluster;
  JIT_DEVICE RowState state(int i, int place) const {
    const unsigned char* const states = bytes_ + Traits::layout.receive_buffer_states;
    return reinterpret_cast<const RowState*>(states)[i * places + place];  // mutate: StatesOfAnotherBlock
  }
  JIT_DEVICE float4 values(int i, int place, int) const {
    // mutate: PiecesOfOneBlockTwice
    return reinterpret_cast<const float4*>(bytes_ + Traits::layout.receive_buffer_values)[i * places + place];
  }

 private:
  JIT_DEVICE unsigned barrier() const { return smem_ + Traits::layout.barrier; }

  unsigned char* bytes_;
  unsigned smem_;
  int rank_;
};

}  // namespace jit::forward_split_cluster
