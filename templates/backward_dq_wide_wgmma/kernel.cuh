// The gradient of the queries of wide heads with TMA and wgmma, for sm_90a. A block owns 64 queries of a head, whose Q and
// dO stay in shared memory; keys and values pass by. A warpgroup computes dS, and two sum half of the columns of dQ each:
//
//     producer warps     panels of K and V                        parts of K
//     score warpgroup    S = Q Kᵀ ─ dP = dO Vᵀ ─ P, dS ──┐
//     sum warpgroups                                     └ dS ─ dQ += dS K
//
// At its start the block computes delta = do · o − dlse of its queries and writes it, beside their LSE, for the kernel of dK and
// dV.
#pragma once

#include "backward/boxes.cuh"
#include "backward/query_block_gradients.cuh"
#include "backward_wide/output_warpgroup.cuh"
#include "backward_wide/panels.cuh"
#include "backward_wide/roles.cuh"
#include "backward_wide/traits.cuh"
#include "backward_wide/weights.cuh"
#include "base/gradient_params.cuh"
#include "base/params.cuh"
#include "problem/gradients.cuh"
#include "problem/kv_tiles.cuh"
#include "problem/masks.cuh"
#include "problem/scores.cuh"
#include "scheduling/grid_place.cuh"
#include "scheduling/query_block.cuh"
#include "steps/dropout.cuh"
#include "steps/score_gradients.cuh"

namespace jit::backward_dq_wide_wgmma {

using namespace backward_wide;

template <class Config>
using KernelTraits = SumTraits<Config, Gradient::dq>;

/// The queries of a block.
template <class Config>
struct OwnQueries {
  const SequencesOf<Config>& sequences;
  WorkTile work;

  JIT_DEVICE int end() const { return minimum(work.q_begin + tile_rows, sequences.q(work.batch).length); }
  /// Calls visit(key, is_partial) for each tile of keys that they see. By a whole warp.
  template <class Visit>
  JIT_DEVICE void for_each_tile(const Visit& visit) const {
    using Mask = typename Config::Mask;
    const Mask mask(sequences.context(work.batch, work.head));
    KvTiles<Mask, tile_rows, 0> tiles(mask, {work.q_begin, end(), 0, 0}, mask.key_range(work.q_begin, end()),
                                      sequences.kv(work.batch).length);
    for (; tiles.has(0); tiles.advance()) visit(tiles.key(0), tiles.is_partial());
  }
};

/// Loads the block's Q and dO, and panels of keys and values. By a whole warp.
template <class Config, class Maps>
JIT_DEVICE void load_operands(const OwnQueries<Config>& own, const Maps& maps, unsigned smem) {
  using Traits = KernelTraits<Config>;
  using Qk = ScoreProduct<Config>;
  using Dov = ProbabilityProduct<Config>;
  const SequencesOf<Config>& sequences = own.sequences;
  const WorkTile work = own.work;
  const int kv_head = sequences.kv_head(work.head);
  const unsigned full = smem + Traits::layout.own_full;
  const auto own_box = query_box<Config>(sequences, work.batch, work.head, work.q_begin);
  PanelPipeline<Traits> pipeline(smem, Traits::layout.panels);
  load_own<Qk>(pipeline, smem + Traits::layout.own, full,
               map_of(maps, &TensorMaps::q, &SequenceMaps::bounded_q, tile_rows), own_box);
  load_own<Dov>(pipeline, smem + Traits::layout.own_v, full,
                map_of(maps, &TensorMaps::d_o, &SequenceMaps::bounded_do, tile_rows), own_box);
  if (lane_id() == 0) mbarrier_arrive(full);
  __syncwarp();
  own.for_each_tile([&](int key, bool) {
    const auto box = key_box<Config>(sequences, work.batch, kv_head, key, tile_rows);
    load_panels<Qk>(pipeline, map_of(maps, &TensorMaps::k, &SequenceMaps::bounded_k, tile_rows), box);
    load_panels<Dov>(pipeline, map_of(maps, &TensorMaps::v, &SequenceMaps::bounded_v, tile_rows), box);
  });
}

/// Loads parts of keys. By a whole warp.
template <class Config, class Maps>
JIT_DEVICE void load_keys(const OwnQueries<Config>& own, const Maps& maps, unsigned smem) {
  using Traits = KernelTraits<Config>;
  const SequencesOf<Config>& sequences = own.sequences;
  const WorkTile work = own.work;
  PartPipeline<Traits> pipeline(smem, Traits::layout.parts);
  own.for_each_tile([&](int key, bool) {
    load_parts<Traits>(pipeline, map_of(maps, &TensorMaps::k, &SequenceMaps::bounded_k, tile_rows),
                       key_box<Config>(sequences, work.batch, sequences.kv_head(work.head), key, tile_rows));
  });
}

/// dS of all tiles of keys; then, behind those that sum, the large rows. By the score warpgroup.
template <class Config>
JIT_DEVICE void compute_ds(const AttentionParams& params, const GradientParams& gradient_params,
                           const OwnQueries<Config>& own, unsigned smem) {
  using Traits = KernelTraits<Config>;
  using Score = typename Config::Score;
  using Scores = typename Traits::Scores;
  using Qk = ScoreProduct<Config>;
  using Dov = ProbabilityProduct<Config>;
  const SequencesOf<Config>& sequences = own.sequences;
  const WorkTile work = own.work;
  const int warp_row = work.q_begin + uniform(threadIdx.x % warpgroup_size / warp_size) * 16;
  const auto statistics =
      write_query_statistics<Config, Scores>(sequences, Gradients<Config>(params, gradient_params, sequences),
                                             params.dropout, work.batch, work.head, warp_row);
  const BlockContext context = sequences.context(work.batch, work.head);
  const TileMask<Config> tile_mask(context);
  const Score score(context);
  const float exponent = score_exponent<Score>(params.softmax_scale);
  const auto dropout =
      dropout_head<Config>(params.dropout, params.heads_q, work.batch, work.head, params.tensors);
  const int first_query = warp_row + MmaLayout::lane_row(lane_id());

  PanelReader<Traits> panels(smem);
  WeightPipeline<Traits> weights(smem);
  const auto q = panels.template take_own<Qk>(uniform(smem + Traits::layout.own));
  const auto d_o = panels.template take_own<Dov>(uniform(smem + Traits::layout.own_v));
  mbarrier_wait_parity(smem + Traits::layout.own_full, 0);  // mutate: NoWaitForTheOwnTiles
  own.for_each_tile([&](int key, bool is_partial) {
    Scores scores, d_scores;
    begin_at_minus(d_scores, statistics.delta);
    panels.template multiply<Qk, true, 0>(scores, q);
    panels.template multiply<Dov, false, Qk::panels>(d_scores, d_o);
    panels.template finish<Qk::panels + Dov::panels>();
    weights.hand_over();
    wgmma_hold(scores.registers[0]);
    wgmma_hold(d_scores.registers[0]);
    drop_to_minus(d_scores, kept_scores<QueriesByKeys, Scores>(dropout, warp_row, key), statistics.delta);
    const int first_key = key + MmaLayout::lane_column(lane_id());
    differentiate_score<QueriesByKeys>(scores, d_scores, first_query, first_key, score, params.softmax_scale,
                                       context);
    if (is_partial) drop_masked_scores<QueriesByKeys>(scores, first_query, first_key, tile_mask, context);
    exponentiate_scores(scores, exponent, statistics.lse_log2);
    multiply_by_probabilities<Score>(d_scores, scores);
    weights.write(d_scores);
  });
  weights.end();
  bar_sync(Traits::computing_barrier, Traits::computing_threads);
  if (__builtin_expect(statistics.has_large, false))
    write_large_rows<Config>(params, gradient_params, sequences, work.batch, work.head, warp_row,
                             minimum(16, own.end() - warp_row));
}

/// dQ of half of the columns. By a warpgroup.
template <class Config>
JIT_DEVICE void compute_dq(const AttentionParams& params, const GradientParams& gradient_params,
                           const OwnQueries<Config>& own, int index, unsigned smem) {
  using Traits = KernelTraits<Config>;
  const SequencesOf<Config>& sequences = own.sequences;
  const WorkTile work = own.work;
  OutputWarpgroup<Traits> output(smem, index);
  output.sum();
  output.store(Gradients<Config>(params, gradient_params, sequences).dq_rows(work.batch, work.head),
               // mutate: DqOfWideHeadsUnscaled
               over_keep_probability<Config>(params.softmax_scale, params.dropout), work.q_begin, own.end());
  bar_sync(Traits::computing_barrier, Traits::computing_threads);
}

template <class Config, class Maps>
JIT_DEVICE void attention_backward_dq(const AttentionParams& params, const GradientParams& gradients,
                                      const Maps& maps) {
  using Traits = KernelTraits<Config>;
  extern __shared__ __align__(1024) unsigned char memory[];
  const unsigned smem = smem_address(memory);
  const WorkTile work = query_block<Config, tile_rows, GroupByGroup<Config::gqa_ratio>>(params);
  const SequencesOf<Config> sequences(params, work.batch);
  if (has_entry_lengths<Config> && (work.q_begin < 0 || work.q_begin >= sequences.q(work.batch).length))
    return;
  if (threadIdx.x == 0) init_pipelines<Traits>(smem);
  __syncthreads();
  const OwnQueries<Config> own{sequences, work};
  run_role<Config>(
      [&](int warp) {
        if (warp == 0) load_operands<Config>(own, maps, smem);
        if (warp == 1) load_keys<Config>(own, maps, smem);
      },
      [&] { compute_ds<Config>(params, gradients, own, smem); },
      [&](int index) { compute_dq<Config>(params, gradients, own, index, smem); });
}

}  // namespace jit::backward_dq_wide_wgmma
