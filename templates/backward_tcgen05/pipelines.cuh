// The pipelines of the kernel, between shared memory, tensor memory and warps:
//
//                      filled by                 read by                       empty when
//     K, V             the producer, by TMA      products                      products are done; all have read the tile info
//     Q and LSE        the producer, by TMA      products, score warps         the same; score warps have read LSE
//     dO, delta        the producer, by TMA      products, score warps         the same; they have read delta
//     S      (tensor)  products                  score warps                   P is full
//     P      (tensor)  score warps               products of dV                S is full again: products run in order
//     dP     (tensor)  products                  score warps                   dS is full
//     dS     (both)    score warps               products of dK and dQ         dP is full again
//     dQ     (tensor)  products                  dQ warps                      each of these says so
//     dQ parts         dQ warps                  the adder                     TMA has read it
//     sums   (tensor)  products                  score warps                   P of the next tile of keys is full
//     turns            the waiter                the adder                     it says so
//
// One count of steps tells all places; that of keys is the round, that of sums counts tiles of keys that queries see, and that
// of parts of dQ these.
#pragma once

#include "backward/key_tiles.cuh"
#include "backward/query_infos.cuh"
#include "backward/step_pipeline.cuh"
#include "backward_tcgen05/traits.cuh"
#include "ptx/mbarrier.cuh"

namespace jit::backward_tcgen05 {

template <class Config>
struct Pipelines {
  using Traits = KernelTraits<Config>;
  static constexpr int statistic_bytes = tile_q * static_cast<int>(sizeof(float));
  static constexpr int dq_part_bytes = Traits::dq_part_floats * static_cast<int>(sizeof(float));
  using DqPipeline = StepPipeline<dq_places, dq_part_bytes>;
  using TensorPipeline = StepPipeline<1, 0>;

  StepPipeline<1, Traits::KTile::bytes + Traits::VTile::bytes> keys;
  StepPipeline<Traits::layout.q.stages, Traits::QTile::bytes> q;
  StepPipeline<Traits::layout.d_o.stages, Traits::DoTile::bytes> d_o;
  StepPipeline<1, Traits::DsTile::bytes> ds;
  TensorPipeline scores, p, d_scores, dq_sums, sums;
  StepPipeline<stages_turns, static_cast<int>(sizeof(int))> turns;
  unsigned smem;

  /// `address` is that of the block's shared memory.
  JIT_DEVICE explicit Pipelines(unsigned address)
      : keys(address, Traits::layout.keys),
        q(address, Traits::layout.q),
        d_o(address, Traits::layout.d_o),
        ds(address, Traits::layout.ds),
        scores(address, Traits::layout.scores_barriers),
        p(address, Traits::layout.p_barriers),
        d_scores(address, Traits::layout.d_scores_barriers),
        dq_sums(address, Traits::layout.dq_barriers),
        sums(address, Traits::layout.sums_barriers),
        turns(address, Traits::layout.turns),
        smem(address) {}

  JIT_DEVICE DqPipeline dq(int /*adder*/) const { return {smem, Traits::layout.dq}; }
  JIT_DEVICE unsigned dq_info(unsigned step) const {
    return smem + Traits::layout.dq_infos + step % stages_dq_infos * 4;
  }
  JIT_DEVICE unsigned lse_log2(unsigned step) const {
    return smem + Traits::layout.lse_log2 + q.stage(step) * statistic_bytes;
  }
  JIT_DEVICE unsigned delta(unsigned step) const {
    return smem + Traits::layout.delta + d_o.stage(step) * statistic_bytes;
  }
  JIT_DEVICE unsigned turn_counts(unsigned step) const {
    return smem + Traits::layout.turn_counts + q.stage(step) * turn_count_bytes;
  }
  JIT_DEVICE unsigned info(unsigned step) const {
    return smem + Traits::layout.infos + q.stage(step) * static_cast<int>(sizeof(QueryTileInfo));
  }
  JIT_DEVICE unsigned k(unsigned round) const { return keys.tile(round); }
  JIT_DEVICE unsigned v(unsigned round) const { return keys.tile(round) + Traits::KTile::bytes; }
  JIT_DEVICE unsigned key_tile_info(unsigned /*round*/) const { return smem + Traits::layout.key_tile_info; }
};

/// By one thread, before any other use; then a __syncthreads.
template <class Config>
JIT_DEVICE void init_pipelines(unsigned smem) {
  constexpr SmemLayout layout = KernelTraits<Config>::layout;
  constexpr int by_commit = 1, adder = 1, waiter = Config::deterministic ? 1 : 0;
  init_pipeline(smem, layout.keys, key_arrivals, by_commit + score_warps + dq_warps + adder + waiter);
  init_pipeline(smem, layout.q, 1, by_commit + score_warps + waiter);
  init_pipeline(smem, layout.d_o, 1, by_commit + score_warps);
  init_pipeline(smem, layout.ds, score_warps, 1);
  init_pipeline(smem, layout.dq, dq_warps, 1);
  init_pipeline(smem, layout.scores_barriers, by_commit, 1);
  init_pipeline(smem, layout.p_barriers, score_warps, 1);
  init_pipeline(smem, layout.d_scores_barriers, by_commit, 1);
  init_pipeline(smem, layout.dq_barriers, by_commit, dq_warps);
  init_pipeline(smem, layout.sums_barriers, by_commit, 1);
  init_pipeline(smem, layout.turns, 1, adder);
  fence_mbarrier_init();
}

/// Waits for what a pipeline is filled with, and orders instructions of tensor memory behind it. By a whole warp.
template <class FilledPipeline>
JIT_DEVICE void wait_for(const FilledPipeline& pipeline, unsigned step) {
  pipeline.consumer_wait(step);
  tcgen05_fence_after();  // mutate: NoFenceBehindAWaitOfBackward
}
/// This warp's instructions of tensor memory come before what waits for it.
template <class FilledPipeline>
JIT_DEVICE void tell(const FilledPipeline& pipeline, unsigned step) {
  tcgen05_fence_before();  // mutate: NoFenceBeforeTelling
  pipeline.producer_commit(step);
}

}  // namespace jit::backward_tcgen05
