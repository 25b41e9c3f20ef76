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
// In a pair of blocks (pair.cuh) both blocks fill dS, and the dQ consumers of both read it.
//
// Where blocks take turns to add dQ (backward/turns.cuh):
//
//     turns        the warp that waits for them     who adds dQ                  each of their warps says so
//     additions    the warps of the consumer of dQ  the warp that passes turns   it has passed the turn
//
// A consumer that adds dQ from registers needs no pipeline of dQ. It does so in turns, and where shared memory is short.
//
// Pipelines advance by a stage with each tile of queries, across tiles of keys, so that one count of steps gives all stages.
// The pipeline of keys advances with each tile of keys (backward/key_tiles.cuh), that of dQ with each part that its adder adds.
#pragma once

#include "backward/key_tiles.cuh"
#include "backward/query_infos.cuh"
#include "backward/step_pipeline.cuh"
#include "backward_wgmma/traits.cuh"
#include "ptx/bulk_copy.cuh"
#include "ptx/mbarrier.cuh"
#include "tiles/shared_words.cuh"

namespace jit::backward_wgmma {

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
  StepPipeline<1, 2 * static_cast<int>(sizeof(int))>
      schedule;  ///< of a pair of blocks (pair.cuh): the next tile of keys
  unsigned smem;

  /// `address` is that of the block's shared memory.
  JIT_DEVICE explicit Pipelines(unsigned address)
      : keys(address, Traits::layout.keys),
        values(address, Traits::layout.values),
        q(address, Traits::layout.q),
        d_o(address, Traits::layout.d_o),
        ds(address, Traits::layout.ds),
        w(address, Traits::layout.w),
        turns(address, Traits::layout.turns),
        added(address, Traits::layout.added),
        schedule(address, Traits::layout.schedule),
        smem(address) {}

  /// Bytes that an adder by TMA adds at once.
  static constexpr int dq_part_bytes = Traits::dq_part_floats * static_cast<int>(sizeof(float));
  using DqPipeline = StepPipeline<Traits::layout.dq_places, dq_part_bytes>;
  JIT_DEVICE DqPipeline dq(int adder) const {
    return {smem, Traits::layout.dq, adder * Traits::layout.dq_places};
  }
  /// Where it is recorded which tile dQ of a step belongs to.
  JIT_DEVICE unsigned dq_info(unsigned step) const {
    return smem + Traits::layout.dq_infos + step % stages_dq_infos * 4;
  }

  JIT_DEVICE unsigned lse_log2(unsigned step) const {
    return smem + Traits::layout.lse_log2 + q.stage(step) * statistic_bytes;
  }
  JIT_DEVICE unsigned delta(unsigned step) const {
    return smem + Traits::layout.delta + d_o.stage(step) * statistic_bytes;
  }
  JIT_DEVICE unsigned means(unsigned step) const {
    return smem + Traits::layout.means + d_o.stage(step) * statistic_bytes;
  }
  JIT_DEVICE unsigned turn_counts(unsigned step) const {
    return smem + Traits::layout.turn_counts + q.stage(step) * turn_count_bytes;
  }
  JIT_DEVICE unsigned info(unsigned step) const {
    return smem + Traits::layout.infos + q.stage(step) * static_cast<int>(sizeof(QueryTileInfo));
  }
  /// Positions of the rows of a tile that lists have put together.
  JIT_DEVICE unsigned query_rows(unsigned step) const {
    return smem + Traits::layout.query_rows + q.stage(step) * statistic_bytes;
  }
  /// This warp needs V of the `round`-th tile no more.
  JIT_DEVICE void arrive_values_empty(unsigned round) const {
    if constexpr (Traits::has_early_values) values.consumer_release(round);
  }
  /// Places of the block's `round`-th tile of keys: K and V, and where it is recorded which it is, as
  /// for_each_key_tile reads it.
  JIT_DEVICE unsigned k(unsigned round) const { return keys.tile(round); }
  JIT_DEVICE unsigned v(unsigned round) const { return keys.tile(round) + Traits::KTile::bytes; }
  JIT_DEVICE unsigned key_tile_info(unsigned round) const {
    return smem + Traits::layout.key_tile_info + keys.stage(round) * key_info_bytes;
  }
};

/// By one thread, before any other use; then a __syncthreads.
template <class Config>
JIT_DEVICE void init_pipelines(unsigned smem) {
  using Traits = KernelTraits<Config>;
  constexpr SmemLayout layout = Traits::layout;
  constexpr int warps = warpgroup_size / warp_size, adders = Traits::adder_warps;
  constexpr int waiting = Config::deterministic ? 1 : 0;  // warps that wait for turns
  init_pipeline(smem, layout.keys, key_arrivals, Traits::consumers * warps + adders + waiting);
  init_pipeline(smem, layout.values, 0, (Traits::has_roles ? 1 : 2) * warps);
  init_pipeline(smem, layout.q, 1, 2 * warps + waiting);  // mutate: QueriesAreLetGoByOneReader
  init_pipeline(smem, layout.d_o, 1, 2 * warps);          // mutate: DoIsLetGoByOneReader
  // mutate: DsIsLetGoForTheOwnBlockAlone
  init_pipeline(smem, layout.ds, Traits::has_roles ? warps : 2 * warps, (Config::pair ? 2 : 1) * warps);
  init_pipeline(smem, layout.w, warps, warps);
  init_pipeline(smem, layout.dq, warps, 1);
  init_pipeline(smem, layout.turns, 1, Traits::adds_by_tma ? adders : warps);
  init_pipeline(smem, layout.added, warps, 1);
  init_pipeline(smem, layout.schedule, 1, 1);
  fence_mbarrier_init();
}

}  // namespace jit::backward_wgmma
