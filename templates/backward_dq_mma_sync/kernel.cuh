// The gradient of the queries with cp.async, ldmatrix and mma.sync: runs on every GPU from sm_80 on.
//
// A block owns tile_q queries of one head; each warp owns tile_q / warps of them. Keys and values pass in tiles of
// tile_kv through a pipeline of `stages` stages:
//
//     wait for K(n), V(n) ─ barrier ─ load K, V(n + ahead) ─ S = Q Kᵀ ─ dP = dO Vᵀ ─ P, dS ─ dQ += dS K
//
// Above 256 columns two warps own the same queries, compute the same gradients of scores, and sum half of the columns of dQ
// each. At its start the block computes delta = do · o − dlse of its queries and writes it, beside their LSE, for the kernel of dK
// and dV.
#pragma once

#include "backward/pass_smem.cuh"
#include "backward/pass_tiles.cuh"
#include "backward/query_block_gradients.cuh"
#include "base/dropout_params.cuh"
#include "base/gradient_params.cuh"
#include "base/params.cuh"
#include "base/prelude.cuh"
#include "problem/entry_sequences.cuh"
#include "problem/functor.cuh"
#include "problem/gradients.cuh"
#include "problem/kv_tiles.cuh"
#include "problem/masks.cuh"
#include "problem/scores.cuh"
#include "scheduling/query_block.cuh"
#include "steps/dropout.cuh"
#include "steps/mean_gradients.cuh"
#include "steps/mma_sync_products.cuh"
#include "steps/score_gradients.cuh"
#include "steps/store_product.cuh"
#include "tiles/tile_copy.cuh"

namespace jit::backward_dq_mma_sync {

/// Traits of a block, which owns queries.
template <class Config>
using KernelTraits = PassTraits<Config, Config::tile_q, Config::tile_kv>;

template <class Config>
JIT_HOST_DEVICE constexpr PassSmem smem_layout() {
  return pass_smem(Config::head_dim, Config::head_dim_v, Config::tile_q, Config::tile_kv, 0, Config::stages);
}

template <class Config>
JIT_DEVICE void attention_backward_dq(const AttentionParams& params, const GradientParams& gradient_params) {
  const DropoutParams& dropout_params = params.dropout;
  using Traits = KernelTraits<Config>;
  using Element = typename Config::Element;
  using Mask = typename Config::Mask;
  using Score = typename Config::Score;
  using Scores = typename Traits::Scores;
  using KTile = typename Traits::OtherTile;
  using VTile = typename Traits::OtherTileV;
  constexpr PassSmem layout = smem_layout<Config>();
  extern __shared__ __align__(128) unsigned char smem[];
  const unsigned smem_base = smem_address(smem);

  const auto [batch, head, q_begin] = query_block<Config, Config::tile_q>(params);
  const SequencesOf<Config> sequences(params, batch);
  const Gradients<Config> gradients(params, gradient_params, sequences);
  const BlockContext context = sequences.context(batch, head);
  const int seqlen_q = context.seqlen_q, seqlen_kv = context.seqlen_kv;
  if (has_entry_lengths<Config> && (q_begin < 0 || q_begin >= seqlen_q)) return;
  const int kv_head = sequences.kv_head(head);
  const typename Traits::template Copy<typename Traits::OwnTile> q_copy(sequences.query_rows(batch, head),
                                                                        seqlen_q);
  const typename Traits::template CopyV<typename Traits::OwnTileV> do_copy(gradients.do_rows(batch, head),
                                                                           seqlen_q);
  const typename Traits::template Copy<KTile> k_copy(sequences.key_rows(batch, kv_head), seqlen_kv);
  const typename Traits::template CopyV<VTile> v_copy(sequences.value_rows(batch, kv_head), seqlen_kv);

  const Mask mask(context);
  const TileMask<Config> tile_mask(context);
  const Score score(context);
  const ScoreTile queries{q_begin, minimum(q_begin + Config::tile_q, seqlen_q), 0, 0};
  KvTiles<Mask, Config::tile_kv, Traits::ahead> tiles(
      mask, queries, mask.key_range(queries.q_begin, queries.q_end), seqlen_kv);
  const auto k_tile = [&](int stage) { return smem_base + layout.other + stage * layout.stage_bytes; };
  const auto v_tile = [&](int stage) { return smem_base + layout.other_v + stage * layout.stage_bytes; };
  const auto load = [&](int ahead, int stage) {
    k_copy.load(k_tile(stage), tiles.key(ahead));
    v_copy.load(v_tile(stage), tiles.key(ahead));
  };
  q_copy.load(smem_base + layout.own, q_begin);
  do_copy.load(smem_base + layout.own_v, q_begin);
  load_first_tiles<Traits>(tiles, load);

  const int warp_row = Traits::first_row();
  const auto statistics = write_query_statistics<Config, Scores>(
      sequences, gradients, dropout_params, batch, head, q_begin + warp_row, Traits::part() == 0);
  const typename Traits::OwnRows q(smem_base + layout.own, warp_row);
  const typename Traits::OwnRowsV d_o(smem_base + layout.own_v, warp_row);
  const int first_query = q_begin + warp_row + MmaLayout::lane_row(lane_id());
  const float exponent = score_exponent<Score>(params.softmax_scale);
  const auto dropout = dropout_head<Config>(dropout_params, params.heads_q, batch, head, params.tensors);

  typename Traits::Gradient dq = {};
  const unsigned own_columns = Traits::part() * Traits::part_columns * ElementTraits<Element>::bytes;
  for_each_tile<Traits>(tiles, load, [&](int stage) {
    Scores scores, d_scores;
    multiply_qk<Element, KTile, Traits::steps>(scores, q, k_tile(stage));
    begin_at_minus(d_scores, statistics.delta);
    add_qk<Element, VTile, Traits::steps_v>(d_scores, d_o, v_tile(stage));
    drop_to_minus(d_scores, kept_scores<QueriesByKeys, Scores>(dropout, q_begin + warp_row, tiles.key(0)),
                  statistics.delta);

    const int first_key = tiles.key(0) + MmaLayout::lane_column(lane_id());
    if constexpr (has_mean_score<Config>) {
      add_mean_gradients<QueriesByKeys>(
          d_scores, scores,
          row_mean_gradients<Config, Scores>(gradients, dropout_params, batch, head, first_query, seqlen_q),
          first_query, first_key, score, params.softmax_scale, context);
    }
    differentiate_score<QueriesByKeys>(scores, d_scores, first_query, first_key, score, params.softmax_scale,
                                       context);
    if (tiles.is_partial())
      drop_masked_scores<QueriesByKeys>(scores, first_query, first_key, tile_mask, context);
    exponentiate_scores(scores, exponent, statistics.lse_log2);
    multiply_by_probabilities<Score>(d_scores, scores);
    multiply_pv<Element, KTile>(dq, d_scores, k_tile(stage) + own_columns);
  });
  store_product<typename Traits::OwnTile, Config::head_dim, Config::alignment, Traits::parts>(
      // mutate: DqOfMmaUnscaled
      dq, over_keep_probability<Config>(params.softmax_scale, dropout_params), gradients.dq_rows(batch, head),
      q_begin + warp_row, seqlen_q, smem_base + layout.own, warp_row, Traits::part());
  if constexpr (Traits::parts > 1) {
    __syncthreads();  // large rows are overwritten whole  // mutate: PartsOfLargeRowsAreStoredLater
    if (Traits::part() != 0) return;
  }
  if (__builtin_expect(statistics.has_large, false))  // mutate: LargeRowsOfTwoPassesAreLeftToLse
    write_large_rows<Config>(params, gradient_params, sequences, batch, head, q_begin + warp_row,
                             minimum(Traits::warp_rows, seqlen_q - q_begin - warp_row));
}

}  // namespace jit::backward_dq_mma_sync
