// The gradients of tensors that scores read, with cp.async, ldmatrix and mma.sync: runs on every GPU from sm_80 on.
//
// A block owns tile_q queries of one head, and computes S and dP of one tile of keys after another as the kernel of dQ
// does. Each score is then computed again for each of its reads, with a derivative with respect to that one
// (problem/tensor_reads.cuh), and of the element that was read
//
//     dT += P ∘ (dP − delta) ∘ ∂f/∂T
//
// Only the score knows the elements: any thread may add to any. Sums are integers, so that their order does not matter
// (sums.cuh), and convert.cuh rounds them at the end. The kernel runs twice, first to find their unit.
#pragma once

#include "backward/pass_tiles.cuh"
#include "backward_tensors/collector.cuh"
#include "backward_tensors/large_rows.cuh"
#include "backward_tensors/smem_layout.cuh"
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
#include "problem/tensor_reads.cuh"
#include "scheduling/query_block.cuh"
#include "steps/dropout.cuh"
#include "steps/mma_sync_products.cuh"
#include "steps/query_statistics.cuh"
#include "steps/score_gradients.cuh"
#include "tiles/tile_copy.cuh"

namespace jit::backward_tensors {

template <class Config>
inline constexpr int block_queries = tile_q(Config::head_dim, Config::head_dim_v);
template <class Config>
using KernelTraits = PassTraits<Config, block_queries<Config>, tile_kv, block_queries<Config> / 16, 1>;

/// Collects gradients of the tensors with a bit in Config::gradient_slots.
template <class Config>
JIT_DEVICE void collect_tensor_gradients(const AttentionParams& params, const GradientParams& gradient_params,
                                         const TensorSums& sums) {
  const DropoutParams& dropout_params = params.dropout;
  using Traits = KernelTraits<Config>;
  using Element = typename Config::Element;
  using Mask = typename Config::Mask;
  using Score = typename Config::Score;
  using Scores = typename Traits::Scores;
  using KTile = typename Traits::OtherTile;
  using VTile = typename Traits::OtherTileV;
  constexpr PassSmem layout = smem_layout(Config::head_dim, Config::head_dim_v);
  extern __shared__ __align__(128) unsigned char smem[];
  const unsigned smem_base = smem_address(smem);

  const auto [batch, head, q_begin] = query_block<Config, block_queries<Config>>(params);
  const SequencesOf<Config> sequences(params, batch);
  const Gradients<Config> gradients(params, gradient_params, sequences);
  const BlockContext context = sequences.context(batch, head);
  const int seqlen_q = context.seqlen_q, seqlen_kv = context.seqlen_kv;
  if (has_entry_lengths<Config> && (q_begin < 0 || q_begin >= seqlen_q)) return;
  const Mask mask(context);
  const Score score(context);
  const ScoreTile queries{q_begin, minimum(q_begin + block_queries<Config>, seqlen_q), 0, 0};
  KvTiles<Mask, tile_kv, 0> tiles(mask, queries, mask.key_range(queries.q_begin, queries.q_end), seqlen_kv);
  if (!tiles.has(0)) return;  // nothing is read

  const int kv_head = sequences.kv_head(head);
  const typename Traits::template Copy<KTile> k_copy(sequences.key_rows(batch, kv_head), seqlen_kv);
  const typename Traits::template CopyV<VTile> v_copy(sequences.value_rows(batch, kv_head), seqlen_kv);
  const auto load = [&](int ahead, int) {
    k_copy.load(smem_base + layout.other, tiles.key(ahead));
    v_copy.load(smem_base + layout.other_v, tiles.key(ahead));
  };
  typename Traits::template Copy<typename Traits::OwnTile>(sequences.query_rows(batch, head), seqlen_q)
      .load(smem_base + layout.own, q_begin);
  typename Traits::template CopyV<typename Traits::OwnTileV>(gradients.do_rows(batch, head), seqlen_q)
      .load(smem_base + layout.own_v, q_begin);
  load_first_tiles<Traits>(tiles, load);

  const int warp_row = Traits::first_row();
  const auto statistics = query_statistics<Config, Scores>(
      sequences, gradients, dropout_params, batch, head, q_begin + warp_row, [](int, float, float, bool) {});
  const typename Traits::OwnRows q(smem_base + layout.own, warp_row);
  const typename Traits::OwnRowsV d_o(smem_base + layout.own_v, warp_row);
  const int first_query = q_begin + warp_row + MmaLayout::lane_row(lane_id());

  const auto dropout = dropout_head<Config>(dropout_params, params.heads_q, batch, head, params.tensors);
  const float scale = over_keep_probability<Config>(1, dropout_params);
  Collector<Config::gradient_slots> collector(sums);
  for_each_tile<Traits>(tiles, load, [&](int) {
    Scores scores, d_scores;
    if (Traits::part() != 0) return;
    multiply_qk<Element, KTile, Traits::steps>(scores, q, smem_base + layout.other);
    begin_at_minus(d_scores, statistics.delta);
    add_qk<Element, VTile, Traits::steps_v>(d_scores, d_o, smem_base + layout.other_v);
    drop_to_minus(d_scores, kept_scores<QueriesByKeys, Scores>(dropout, q_begin + warp_row, tiles.key(0)),
                  statistics.delta);
    const int first_key = tiles.key(0) + MmaLayout::lane_column(lane_id());
    const bool is_partial = tiles.is_partial();
    for_each_place<QueriesByKeys, Scores>(
        first_query, first_key, [&](int r, int n, int i, int query, int key) {
          // mutate: NoMask
          if (query >= seqlen_q || key >= seqlen_kv || (is_partial && !mask.keep(query, key))) return;
          const Dual s = scores.at(r, n, i) * params.softmax_scale;
          TensorReads<Config::gradient_slots> reads(gradient_params.tensors);
          const Dual applied = score.apply(s, query, key, reads);
          const float p = ex2(__fmaf_rn(applied.value, log2_e, -statistics.lse_log2.numbers[r]));
          if (p == 0) return;  // also of scores of −inf, whose derivative may be anything
          collect_reads<Config>(collector, sums, reads, applied, p * scale * d_scores.at(r, n, i),
                                [&] { return score.apply(s, query, key, reads); });
        });
  });
  if (Traits::part() != 0) return;
  if (__builtin_expect(statistics.has_large, false))  // mutate: TensorsOfLargeRowsLeftOut
    collect_large_rows<Config>(params, gradient_params, sums, sequences, batch, head, q_begin + warp_row,
                               statistics.delta, collector);
  collector.for_each(
      [&](ElementCollector& own) { sums.measures != 0 ? own.finish_measuring() : own.finish_adding(); });
}

}  // namespace jit::backward_tensors
