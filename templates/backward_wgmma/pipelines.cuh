// The pipelines of a one-pass kernel, and the tile infos that go with tiles of queries.
//
//                  written by                   read by          released by
//     K, V         the producer, by TMA         consumers        each consumer warp
//     Q and LSE    the producer, by TMA         consumers        each consumer warp
//     dO, delta    the producer, by TMA         consumers        with Q, which is read last
//     dS           each consumer warp           both consumers   when the next dS is full
//     dQ           the warps of one consumer    its adder        the adder, once TMA has read it
//
// With a dQ consumer (has_query_consumer), and consumers of rows:
//
//     dS           each row consumer warp       dQ consumer      each of its warps
//     dQ           the dQ consumer's warps      the adder        the adder, once TMA has read it
//
// With roles (has_roles), and dQ as with a dQ consumer:
//
//     Q and LSE    the producer, by TMA         dV and dK consumers   each of their warps
//     dO, delta    the producer, by TMA         dV and dK consumers   each of their warps
//     W            the dV consumer's warps      dK consumer           each of its warps
//     dS           the dK consumer's warps      dQ consumer           each of its warps
//
// In a pair of blocks (pair.cuh) both blocks fill dS, and the dQ consumers of both read it.
//
// If blocks take turns to add dQ (backward/turns.cuh):
//
//     turns        the turn waiter              all warps that add dQ   each of these warps
//     additions    the dQ consumer's warps      a turn passer           the turn passer, once it has signaled
//
// Consumers that add dQ from registers, in deterministic mode with roles or varlen sequences, or without a buffer, need
// no pipeline of dQ; others need none of additions.
//
// Pipelines advance with each tile of queries, across tiles of keys, so that one step index determines all stages. The
// pipeline of keys advances with each tile of keys (backward/key_tiles.cuh), that of dQ with each part of an adder.
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
      keys;                   ///< advances with each tile of keys
  StepPipeline<1, 0> values;  ///< only empty barriers, for V of a tile; with early values
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

  /// Bytes of a part of dQ that an adder adds by one TMA reduction.
  static constexpr int dq_part_bytes = Traits::dq_part_floats * static_cast<int>(sizeof(float));
  using DqPipeline = StepPipeline<Traits::layout.dq_places, dq_part_bytes>;
  JIT_DEVICE DqPipeline dq(int adder) const {
    return {smem, Traits::layout.dq, adder * Traits::layout.dq_places};
  }
  /// Shared address of the dQ info of a step: the tile of queries that its dQ belongs to.
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
  /// Releases V of the `round`-th tile for this warp.
  JIT_DEVICE void arrive_values_empty(unsigned round) const {
    if constexpr (Traits::has_early_values) values.consumer_release(round);
  }
  /// Shared addresses of the block's `round`-th tile of keys: K, V, and its tile info, as for_each_key_tile reads it.
  JIT_DEVICE unsigned k(unsigned round) const { return keys.tile(round); }
  JIT_DEVICE unsigned v(unsigned round) const { return keys.tile(round) + Traits::KTile::bytes; }
  JIT_DEVICE unsigned key_tile_info(unsigned round) const {
    return smem + Traits::layout.key_tile_info + keys.stage(round) * key_info_bytes;
  }
};

/// Initializes all pipelines. By one thread, before any other use; a __syncthreads must follow.
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
