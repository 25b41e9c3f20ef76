// The pipelines of a one-pass kernel, and the tile infos that go with tiles of queries.
//
//                  filled by                    read by          empty when
//     K, V         the producer, by TMA         consumers        each consumer warp says so
//     Q and LSE    the producer, by TMA         consumers        the same
//     dO, delta    the producer, by TMA         consumers        Q is: it is read last
//     dS           each consumer warp           both consumers   the next dS is full
//     dQ           the warps of one consumer    its adder        TMA has read it
//
// Beside a consumer of dQ (has_query_consumer), rows:
//
//     dS           each warp of rows            that of dQ       each of its warps says so
//     dQ           the warps of that of dQ      the adder        TMA has read it
//
// With roles (has_roles), and dQ as beside a consumer of it:
//
//     Q and LSE    the producer, by TMA         those of dV and dK    each of their warps says so
//     dO, delta    the producer, by TMA         those of dV and dK    the same
//     W            the warps of that of dV      that of dK            each of its warps says so
//     dS           the warps of that of dK      that of dQ            each of its warps says so
//
// Of a pair of blocks (pair.cuh) dS is filled by both, and read by both blocks' consumers of dQ.
//
// Where blocks take turns to add dQ (backward/turns.cuh):
//
//     turns        the warp that waits for them     who adds dQ                  each of their warps says so
//     additions    the warps of the consumer of dQ  the warp that passes turns   it has passed the turn
//
// Where a consumer of dQ adds it from registers, there is no pipeline of it: in turns, and where there is no room.
//
// Pipelines go on by a stage with each tile of queries, from one tile of keys to the next, so that one count of steps
// tells all places. That of keys goes on with each tile of keys (key_tiles.cuh), that of dQ with each part that its
// adder adds.
#pragma once

#include "backward_wgmma/traits.cuh"
#include "ptx/bulk_tensor.cuh"
#include "ptx/mbarrier.cuh"
#include "tiles/shared_words.cuh"

namespace jit::backward_wgmma {

/// `stages`, a power of two, tiles and their mbarriers at shared addresses: `full` ends a phase when the tile has come,
/// `empty` when every reader is done with it.
template <int stages, int stage_bytes>
struct StepPipeline {
  static_assert((stages & (stages - 1)) == 0, "steps count stages");
  unsigned tiles;
  unsigned full;
  unsigned empty;

  static __device__ __forceinline__ unsigned stage(unsigned step) { return step % stages; }
  static __device__ __forceinline__ unsigned round(unsigned step) { return step / stages % 2; }

  __device__ __forceinline__ unsigned tile(unsigned step) const { return tiles + stage(step) * stage_bytes; }
  __device__ __forceinline__ unsigned full_at(unsigned step) const { return full + stage(step) * 8; }
  __device__ __forceinline__ unsigned empty_at(unsigned step) const { return empty + stage(step) * 8; }
  /// Whether the tile has come. Does not wait.
  __device__ __forceinline__ bool is_full(unsigned step) const {
    return mbarrier_test_parity(full_at(step), round(step));
  }
  __device__ __forceinline__ void consumer_wait(unsigned step) const {
    mbarrier_wait_parity(full_at(step), round(step));
  }
  __device__ __forceinline__ void producer_acquire(unsigned step) const {
    mbarrier_wait_parity(empty_at(step), round(step) ^ 1);
  }
  /// This warp has filled, or read, its part.
  __device__ __forceinline__ void producer_commit(unsigned step) const { arrive(full_at(step)); }
  __device__ __forceinline__ void consumer_release(unsigned step) const { arrive(empty_at(step)); }

 private:
  static __device__ __forceinline__ void arrive(unsigned barrier) {
    __syncwarp();
    if (lane_id() == 0) mbarrier_arrive(barrier);
  }
};

/// How many times the producer arrives for a tile of keys: with V and with K.
inline constexpr int key_arrivals = 2;

template <class Config>
struct Pipelines {
  using Traits = KernelTraits<Config>;
  static constexpr int statistic_bytes = Config::tile_q * static_cast<int>(sizeof(float));
  StepPipeline<Traits::stages_keys, Traits::KTile::bytes + Traits::VTile::bytes>
      keys;                   ///< goes on with each tile of keys
  StepPipeline<1, 0> values;  ///< only says when V of a tile has been read; with early values
  StepPipeline<Config::stages, Traits::QTile::bytes> q;
  StepPipeline<Traits::stages_do, Traits::DoTile::bytes> d_o;
  StepPipeline<Traits::stages_ds, Traits::DsTile::bytes> ds;
  StepPipeline<1, 0> w;
  StepPipeline<stages_turns, static_cast<int>(sizeof(int))> turns;
  StepPipeline<stages_turns, static_cast<int>(sizeof(int))> added;
  unsigned smem;

  /// `address` is that of the block's shared memory.
  __device__ __forceinline__ explicit Pipelines(unsigned address)
      : keys{address + Traits::layout.k, address + Traits::layout.keys_full,
             address + Traits::layout.keys_empty},
        values{0, 0, address + Traits::layout.values_empty},
        q{address + Traits::layout.q, address + Traits::layout.q_full, address + Traits::layout.q_empty},
        d_o{address + Traits::layout.d_o, address + Traits::layout.do_full,
            address + Traits::layout.do_empty},
        ds{address + Traits::layout.ds, address + Traits::layout.ds_full, address + Traits::layout.ds_empty},
        w{address + Traits::layout.w, address + Traits::layout.w_full, address + Traits::layout.w_empty},
        turns{address + Traits::layout.turn_infos, address + Traits::layout.turn_full,
              address + Traits::layout.turn_empty},
        added{address + Traits::layout.added_infos, address + Traits::layout.added_full,
              address + Traits::layout.added_empty},
        smem(address) {}

  /// Of an adder by TMA. It goes on with each part.
  static constexpr int dq_part_bytes = Traits::dq_part_floats * static_cast<int>(sizeof(float));
  using DqPipeline = StepPipeline<Traits::layout.dq_places, dq_part_bytes>;
  __device__ __forceinline__ DqPipeline dq(int adder) const {
    const int first = adder * Traits::layout.dq_places;
    return {smem + Traits::layout.dq + first * dq_part_bytes, smem + Traits::layout.dq_full + first * 8,
            smem + Traits::layout.dq_empty + first * 8};
  }
  /// Where it is recorded which tile dQ of a step belongs to.
  __device__ __forceinline__ unsigned dq_info(unsigned step) const {
    return smem + Traits::layout.dq_infos + step % stages_dq_infos * 4;
  }

  __device__ __forceinline__ unsigned lse_log2(unsigned step) const {
    return smem + Traits::layout.lse_log2 + q.stage(step) * statistic_bytes;
  }
  __device__ __forceinline__ unsigned delta(unsigned step) const {
    return smem + Traits::layout.delta + d_o.stage(step) * statistic_bytes;
  }
  __device__ __forceinline__ unsigned turn_counts(unsigned step) const {
    return smem + Traits::layout.turn_counts + q.stage(step) * turn_count_bytes;
  }
  __device__ __forceinline__ unsigned info(unsigned step) const {
    return smem + Traits::layout.infos + q.stage(step) * static_cast<int>(sizeof(QueryTileInfo));
  }
  /// Of a pair of blocks (pair.cuh): where it is recorded which tile of keys comes next, and when it is, or has been
  /// read.
  __device__ __forceinline__ unsigned schedule_info() const { return smem + Traits::layout.schedule_info; }
  __device__ __forceinline__ unsigned schedule_full() const { return smem + Traits::layout.schedule_full; }
  __device__ __forceinline__ unsigned schedule_empty() const { return smem + Traits::layout.schedule_empty; }
  /// This warp needs V of the `round`-th tile no more.
  __device__ __forceinline__ void arrive_values_empty(unsigned round) const {
    if constexpr (Traits::has_early_values) values.consumer_release(round);
  }
  /// Of the block's `round`-th tile of keys: K and V, and where it is recorded which it is, as for_each_key_tile
  /// reads it.
  __device__ __forceinline__ unsigned k(unsigned round) const { return keys.tile(round); }
  __device__ __forceinline__ unsigned v(unsigned round) const {
    return keys.tile(round) + Traits::KTile::bytes;
  }
  __device__ __forceinline__ unsigned key_tile_info(unsigned round) const {
    return smem + Traits::layout.key_tile_info + keys.stage(round) * key_info_bytes;
  }
};

/// By one thread, before any other use; then a __syncthreads.
template <class Config>
__device__ __forceinline__ void init_pipelines(unsigned smem) {
  using Traits = KernelTraits<Config>;
  const auto init = [&](int barriers, int stages, int arrivals) {
    for (int stage = 0; stage < stages; ++stage) mbarrier_init(smem + barriers + stage * 8, arrivals);
  };
  constexpr int warps = warpgroup_size / warp_size;
  constexpr int ds_warps = Traits::has_roles ? warps : 2 * warps;
  constexpr int adders = Traits::adder_warps;
  init(Traits::layout.keys_full, Traits::stages_keys, key_arrivals);
  init(Traits::layout.values_empty, 1, (Traits::has_roles ? 1 : 2) * warps);
  init(Traits::layout.keys_empty, Traits::stages_keys,
       Traits::consumers * warps + adders + (Config::deterministic ? 1 : 0));
  init(Traits::layout.q_full, Config::stages, 1);
  // mutate: QueriesAreLetGoByOneReader
  init(Traits::layout.q_empty, Config::stages, 2 * warps + (Config::deterministic ? 1 : 0));
  init(Traits::layout.do_full, Traits::stages_do, 1);
  init(Traits::layout.ds_full, Traits::stages_ds, ds_warps);
  if constexpr (Traits::has_query_consumer)
    // mutate: DsIsLetGoForTheOwnBlockAlone
    init(Traits::layout.ds_empty, Traits::stages_ds, (Config::pair ? 2 : 1) * warps);
  if constexpr (Config::pair) {
    init(Traits::layout.schedule_full, 1, 1);
    init(Traits::layout.schedule_empty, 1, 1);
  }
  if constexpr (Traits::has_roles) {
    init(Traits::layout.do_empty, Traits::stages_do, 2 * warps);  // mutate: DoIsLetGoByOneReader
    init(Traits::layout.w_full, 1, warps);
    init(Traits::layout.w_empty, 1, warps);
  }
  if constexpr (adders > 0) {
    init(Traits::layout.dq_full, adders * Traits::layout.dq_places, warps);
    init(Traits::layout.dq_empty, adders * Traits::layout.dq_places, 1);
  }
  if constexpr (Config::deterministic) {
    init(Traits::layout.turn_full, stages_turns, 1);
    init(Traits::layout.turn_empty, stages_turns, Traits::adds_by_tma ? adders : warps);
    if constexpr (!Traits::adds_by_tma) {
      init(Traits::layout.added_full, stages_turns, warps);
      init(Traits::layout.added_empty, stages_turns, 1);
    }
  }
  fence_mbarrier_init();
}

/// What is recorded of dQ of a step: the index of its tile among those of the batch entry, and whether it is the last
/// one of the tile of keys.
inline constexpr int last_dq_tile = 1 << 30;

inline constexpr int query_info_partial = 1;  ///< some score of the tile must be dropped
inline constexpr int query_info_end = 2;      ///< the last tile of queries for these keys

__device__ __forceinline__ void store_query_info(unsigned info, const QueryTileInfo& value) {
  store_shared(info, value.head);
  store_shared(info + 4, value.query);
  store_shared(info + 8, value.flags);
}
/// By each lane for itself.
__device__ __forceinline__ int load_own_query_info_flags(unsigned info) { return load_shared(info + 8); }
/// By whole warps.
__device__ __forceinline__ int load_query_info_head(unsigned info) { return load_shared_by_warp(info); }
__device__ __forceinline__ int load_query_info_query(unsigned info) { return load_shared_by_warp(info + 4); }
__device__ __forceinline__ int load_query_info_flags(unsigned info) { return load_shared_by_warp(info + 8); }

}  // namespace jit::backward_wgmma
