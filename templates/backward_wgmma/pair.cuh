// A pair of blocks (a cluster) that shares a tile of keys, if one block owns too few: each addition to dQ in global
// memory then sums over the keys of both.
//
//                 first block                                  second block
//     owns        the first 64 keys                            the last 64
//     both        S, dP, dS, dV and dK of the own keys, of the same tiles of queries in the same order
//     exchange    dS of the own keys to the other one, by a copy from shared memory to shared memory
//     dQ          the first half of the panels of K,           the other half
//                 a sum over the keys of both
//
// So each block adds half of dQ, and multiplies as much as it would alone. (Exchanging dS in a pair is an idea of pull
// request 2889 of flash-attention.) The first block's producer takes tiles of keys and sends them to the other one's.
#pragma once

#include "backward/dq_adder.cuh"
#include "backward/key_tile.cuh"
#include "backward/key_tile_scheduler.cuh"
#include "backward_wgmma/pipelines.cuh"
#include "ptx/cluster.cuh"
#include "ptx/warpgroup.cuh"

namespace jit::backward_wgmma {

/// The rank of this block in its pair; 0 without pairs.
template <class Config>
JIT_DEVICE int pair_rank() {
  if constexpr (Config::pair) return cluster_rank();
  return 0;
}

/// The keys of a tile that block `rank` of a pair owns.
template <class Config>
JIT_DEVICE KeyTile<Config> keys_of_block(KeyTile<Config> keys, int rank) {
  keys.k_begin += rank * KernelTraits<Config>::own_keys;  // mutate: BothOwnTheFirstKeys
  return keys;
}
template <class Config>
JIT_DEVICE KeyTile<Config> own_keys(const KeyTile<Config>& keys) {
  return keys_of_block(keys, pair_rank<Config>());
}

/// The panels of dQ, and of K, that a block multiplies.
template <class Config>
JIT_DEVICE PanelRange own_panels(int rank) {
  using Traits = KernelTraits<Config>;
  const int begin = rank * Traits::own_dq_parts;  // mutate: BothAddTheFirstPanels
  if constexpr (Traits::dq_parts % Traits::own_dq_parts == 0) return {begin, Traits::own_dq_parts};
  return {begin, minimum(Traits::own_dq_parts, Traits::dq_parts - begin)};
}

/// The parts of dQ that an adder of a block adds.
template <class Config>
JIT_DEVICE PanelRange parts_of_adder(int adder) {
  if constexpr (KernelTraits<Config>::has_query_consumer) return own_panels<Config>(pair_rank<Config>());
  return {adder, 1};
}

/// The panel of a tile of dS of the block's own keys, and that of the peer's keys.
inline constexpr int own_ds_panel = 0, peer_ds_panel = 1;

/// Sends dS of a step to the peer, once all warps of the consumer have written theirs; replaces
/// StepPipeline::producer_commit. Each block's `full` also waits for the peer's bytes. By all threads of the consumer.
template <class Config>
JIT_DEVICE void send_ds(const Pipelines<Config>& pipelines, unsigned step) {
  using Traits = KernelTraits<Config>;
  constexpr int bytes = Traits::DsTile::panel_bytes;
  const bool sends = threadIdx.x % warpgroup_size == 0;
  if (sends) mbarrier_expect_tx(pipelines.ds.full_at(step), bytes);  // mutate: DqDoesNotWaitForThePeersDs
  pipelines.ds.producer_commit(step);
  bar_sync(Traits::ds_barrier, warpgroup_size);  // mutate: DsIsSentBeforeAllWarpsHaveWritten
  if (sends) {
    const int peer = pair_rank<Config>() ^ 1;
    const unsigned tile = pipelines.ds.tile(step);
    cp_async_bulk_to_block(cluster_address(tile + peer_ds_panel * bytes, peer), tile + own_ds_panel * bytes,
                           bytes, cluster_address(pipelines.ds.full_at(step), peer));
  }
}

/// Releases dS of a step for this warp, in both blocks, since both write it.
template <class Config>
JIT_DEVICE void arrive_ds_empty(const Pipelines<Config>& pipelines, unsigned step) {
  pipelines.ds.consumer_release(step);
  if constexpr (Config::pair) {
    if (lane_id() == 0)
      mbarrier_arrive_cluster(cluster_address(pipelines.ds.empty_at(step), pair_rank<Config>() ^ 1));
  }
}

/// Sends the next tile of keys to the second block's producer. By a whole warp; `round` counts tiles.
template <class Config>
JIT_DEVICE void send_tile(const Pipelines<Config>& pipelines, unsigned round, int tile) {
  pipelines.schedule.producer_acquire(round);
  if (lane_id() == 0)
    store_async(cluster_address(pipelines.schedule.tiles, 1), make_float2(__int_as_float(tile), 0),
                cluster_address(pipelines.schedule.full, 1));
}
/// Receives the next tile of keys in the second block's producer.
template <class Config>
JIT_DEVICE int receive_tile(const Pipelines<Config>& pipelines, unsigned round) {
  if (lane_id() == 0) mbarrier_arrive_expect_tx(pipelines.schedule.full, 2 * static_cast<int>(sizeof(float)));
  __syncwarp();
  mbarrier_wait_parity_cluster(pipelines.schedule.full, round % 2);
  const int tile = load_shared_by_warp(pipelines.schedule.tiles);
  __syncwarp();
  if (lane_id() == 0) mbarrier_arrive_cluster(cluster_address(pipelines.schedule.empty, 0));
  return tile;
}

/// Schedules a block's tiles; in a pair the first block's scheduler does so, and sends each tile to the second block.
template <class Config>
class BlockScheduler {
 public:
  JIT_DEVICE BlockScheduler(const AttentionParams& params, const KeySchedule& schedule, unsigned smem)
      : scheduler_(params, schedule), pipelines_(smem) {}

  JIT_DEVICE int first() {
    return agree([&] { return scheduler_.first(); });
  }
  JIT_DEVICE int next() {
    return agree([&] { return scheduler_.next(); });
  }

 private:
  template <class Take>
  JIT_DEVICE int agree(Take take) {
    if constexpr (Config::pair) {
      const unsigned round = round_++;
      if (pair_rank<Config>() != 0) return receive_tile(pipelines_, round);
      const int tile = take();
      send_tile(pipelines_, round, tile);
      return tile;
    } else {
      return take();
    }
  }

  KeyTileScheduler<Config> scheduler_;
  const Pipelines<Config> pipelines_;
  unsigned round_ = 0;
};

/// Synchronizes the pair, after barrier initialization and at the end, as the peer accesses this block. By all threads.
JIT_DEVICE void meet_pair() {
  cluster_arrive();
  cluster_wait();
}

}  // namespace jit::backward_wgmma
