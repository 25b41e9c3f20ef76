// The gradients of keys and values with cp.async, ldmatrix and mma.sync: runs on every GPU from sm_80 on.
//
// A block owns tile_kv keys of one KV head; each warp owns tile_kv / warps of them. The queries of all heads that share
// the keys pass in tiles of tile_q through a pipeline of `stages` stages. Products have keys as rows, so that P and dS stay in
// registers, as the left operands of the next products:
//
//     wait for Q(n), dO(n) ─ barrier ─ load Q, dO(n + ahead) ─ Sᵀ = K Qᵀ ─ dPᵀ = V dOᵀ ─ P, dS ─
//     dV += Pᵀ dO ─ dK += dSᵀ Q
//
// Gradients are sums in a fixed order by one warp: equal inputs give bitwise identical results, and nothing needs to be
// zeroed or converted. Above 256 columns two warps own the same keys, compute the same P and dS, and sum half of the
// columns of dK and dV each.
#pragma once

#include "backward/key_block.cuh"
#include "backward/pass_smem.cuh"
#include "backward/pass_tiles.cuh"
#include "base/dropout_params.cuh"
#include "base/gradient_params.cuh"
#include "base/params.cuh"
#include "base/prelude.cuh"
#include "problem/entry_sequences.cuh"
#include "problem/functor.cuh"
#include "problem/gradients.cuh"
#include "problem/masks.cuh"
#include "problem/query_tiles.cuh"
#include "problem/scores.cuh"
#include "ptx/cp_async.cuh"
#include "steps/dropout.cuh"
#include "steps/large_row_gradients.cuh"
#include "steps/mean_gradients.cuh"
#include "steps/mma_sync_products.cuh"
#include "steps/score_gradients.cuh"
#include "steps/store_product.cuh"

namespace jit::backward_dkv_mma_sync {

/// The block's tile of keys; its place may be empty. By all threads of each block.
template <class Config, bool has_dk, bool has_dv>
JIT_DEVICE void add_large_rows_to_keys(const AttentionParams& params, const GradientParams& gradient_params,
                                       int batch, int kv_head, int first_key) {
  const SequencesOf<Config> sequences(params, batch);
  const Gradients<Config> gradients(params, gradient_params, sequences);
  const auto place = [&](int head, int query) {
    return gradients.lse_log2(batch, head) - gradient_params.lse_log2 + query;
  };
  __syncthreads();  // what is added to was stored by other warps  // mutate: LargeRowsAreAddedTooEarly
  const int end = minimum(first_key + Config::tile_kv, sequences.kv(batch).length);
  if (first_key >= 0)
    add_large_rows<Config, has_dk, has_dv>(params, gradient_params, sequences, batch, kv_head, first_key, end,
                                           place, 1);
  have_added_large_rows(gradient_params);
}

/// Traits of a block, which owns keys.
template <class Config>
using KernelTraits = PassTraits<Config, Config::tile_kv, Config::tile_q>;

template <class Config>
JIT_HOST_DEVICE constexpr PassSmem smem_layout() {
  return pass_smem(Config::head_dim, Config::head_dim_v, Config::tile_kv, Config::tile_q, Config::tile_q,
                   Config::stages);
}

/// Which gradients a block sums.
enum class Part { both, dk, dv };

/// The tile of this block, in a grid whose heads of dK are in front of those of dV where blocks sum only one of them.
template <class Config>
JIT_DEVICE KeyBlock own_keys(const AttentionParams& params, const GradientParams& gradients) {
  return key_block<Config>(params, gradients, static_cast<int>(blockIdx.x) % params.heads_kv);
}

/// Starts the copy of the numbers of the tile's queries to shared address `tile`, zeros behind the last one.
template <class Config>
JIT_DEVICE void load_statistics(unsigned tile, const float* numbers, int first, int seqlen_q) {
  constexpr int chunk = chunk_bytes / static_cast<int>(sizeof(float));
  for (int i = threadIdx.x * chunk; i < Config::tile_q; i += KernelTraits<Config>::threads * chunk)
    cp_async_zfill<chunk_bytes>(tile + i * static_cast<unsigned>(sizeof(float)), numbers + first + i,
                                first + i < statistic_rows(seqlen_q));
}

/// Returns whether the call has large rows, which are left out.
template <class Config, Part part>
JIT_DEVICE bool sum_gradients(const AttentionParams& params, const GradientParams& gradient_params) {
  const DropoutParams& dropout_params = params.dropout;
  using Traits = KernelTraits<Config>;
  using Element = typename Config::Element;
  using Score = typename Config::Score;
  using Scores = typename Traits::Scores;
  using KTile = typename Traits::OwnTile;
  using VTile = typename Traits::OwnTileV;
  using QTile = typename Traits::OtherTile;
  using DoTile = typename Traits::OtherTileV;
  constexpr PassSmem layout = smem_layout<Config>();
  constexpr bool has_dk = part != Part::dv, has_dv = part != Part::dk;
  extern __shared__ __align__(128) unsigned char smem[];
  const unsigned smem_base = smem_address(smem);

  const auto [batch, kv_head, k_begin] = own_keys<Config>(params, gradient_params);
  const SequencesOf<Config> sequences(params, batch);
  const Gradients<Config> gradients(params, gradient_params, sequences);
  const int seqlen_q = sequences.q(batch).length, seqlen_kv = sequences.kv(batch).length;
  // mutate: PlacesBeforeTheFirstSequenceAreTiles
  if (has_entry_lengths<Config> && (k_begin < 0 || k_begin >= seqlen_kv))
    return has_large_rows(gradient_params);
  QueryTiles<Config, Traits::ahead> tiles(sequences, batch, kv_head,
                                          {0, 0, k_begin, minimum(k_begin + Config::tile_kv, seqlen_kv)});

  const auto at_stage = [&](int place, int stage) { return smem_base + place + stage * layout.stage_bytes; };
  const auto load = [&](int ahead, int stage) {
    const int head = tiles.head(ahead), query = tiles.query(ahead);
    typename Traits::template Copy<QTile>(sequences.query_rows(batch, head), seqlen_q)
        .load(at_stage(layout.other, stage), query);
    typename Traits::template CopyV<DoTile>(gradients.do_rows(batch, head), seqlen_q)
        .load(at_stage(layout.other_v, stage), query);
    // mutate: StatisticsOfTheFirstHead
    load_statistics<Config>(at_stage(layout.lse_log2, stage), gradients.lse_log2(batch, head), query,
                            seqlen_q);
    if (has_dk)
      load_statistics<Config>(at_stage(layout.delta, stage), gradients.delta(batch, head), query, seqlen_q);
  };
  typename Traits::template Copy<KTile>(sequences.key_rows(batch, kv_head), seqlen_kv)
      .load(smem_base + layout.own, k_begin);
  if (has_dk) {
    typename Traits::template CopyV<VTile>(sequences.value_rows(batch, kv_head), seqlen_kv)
        .load(smem_base + layout.own_v, k_begin);
  }
  load_first_tiles<Traits>(tiles, load);

  const int warp_row = Traits::first_row(), part_of_columns = Traits::part();
  const typename Traits::OwnRows k(smem_base + layout.own, warp_row);
  const typename Traits::OwnRowsV v(smem_base + layout.own_v, warp_row);
  const int first_key = k_begin + warp_row + MmaLayout::lane_row(lane_id());
  const int lane_query = MmaLayout::lane_column(lane_id());
  const unsigned lane_statistic = lane_query * static_cast<unsigned>(sizeof(float));
  const float exponent = score_exponent<Score>(params.softmax_scale);

  constexpr int bytes = ElementTraits<Element>::bytes;
  const unsigned own_columns = part_of_columns * Traits::part_columns * bytes,
                 own_columns_v = part_of_columns * Traits::part_columns_v * bytes;
  typename Traits::Gradient dk = {};
  typename Traits::ValueGradient dv = {};
  for_each_tile<Traits>(tiles, load, [&](int stage) {
    const BlockContext context = sequences.context(batch, tiles.head(0));
    const auto dropout =
        dropout_head<Config>(dropout_params, params.heads_q, batch, context.head, params.tensors);
    const auto kept = kept_scores<KeysByQueries, Scores>(dropout, tiles.query(0), k_begin + warp_row);
    const Score score(context);
    const int first_query = tiles.query(0) + lane_query;
    const unsigned q_tile = at_stage(layout.other, stage), do_tile = at_stage(layout.other_v, stage);
    const ColumnNumbers delta{at_stage(layout.delta, stage) + lane_statistic};
    Scores scores, d_scores;
    multiply_qk<Element, QTile, Traits::steps>(scores, k, q_tile);
    if constexpr (has_dk) {
      begin_at_minus(d_scores, delta);
      add_qk<Element, DoTile, Traits::steps_v>(d_scores, v, do_tile);
      drop_to_minus(d_scores, kept, delta);
      if constexpr (has_mean_score<Config>) {
        add_mean_gradients<KeysByQueries>(d_scores, scores,
                                          ColumnMeanGradients<Config>{gradients, dropout_params, batch,
                                                                      context.head, first_query, seqlen_q},
                                          first_key, first_query, score, params.softmax_scale, context);
      }
      differentiate_score<KeysByQueries>(scores, d_scores, first_key, first_query, score,
                                         params.softmax_scale, context);
    } else {
      apply_score<KeysByQueries>(scores, first_key, first_query, score, params.softmax_scale, context);
    }
    if (tiles.is_partial()) {
      const TileMask<Config> mask(context);
      drop_masked_scores<KeysByQueries>(scores, first_key, first_query, mask, context);
    }
    exponentiate_scores(scores, exponent, ColumnNumbers{at_stage(layout.lse_log2, stage) + lane_statistic});
    // dS is of all probabilities, dV of those that are kept.
    if constexpr (has_dv)
      multiply_pv<Element, DoTile>(dv, scores, do_tile + own_columns_v, kept);  // mutate: FactorsOfDv
    if constexpr (has_dk) {
      multiply_by_probabilities<Score>(d_scores, scores);
      multiply_pv<Element, QTile>(dk, d_scores, q_tile + own_columns);
    }
  });
  const bool has_large = has_large_rows(gradient_params);  // on its way while gradients are stored
  if constexpr (has_dk) {
    store_product<KTile, Config::head_dim, Config::alignment, Traits::parts>(
        dk, over_keep_probability<Config>(params.softmax_scale, dropout_params),
        gradients.dk_rows(batch, kv_head), k_begin + warp_row, seqlen_kv, smem_base + layout.own, warp_row,
        part_of_columns);
  }
  if constexpr (has_dv) {
    store_product<VTile, Config::head_dim_v, Config::alignment, Traits::parts>(
        dv, over_keep_probability<Config>(1.0f, dropout_params), gradients.dv_rows(batch, kv_head),
        k_begin + warp_row, seqlen_kv, smem_base + layout.own_v, warp_row, part_of_columns);
  }
  return has_large;
}

/// Sums all gradients of a block, those of large rows after the others.
template <class Config, Part part>
JIT_DEVICE void sum_all_gradients(const AttentionParams& params, const GradientParams& gradients) {
  if (__builtin_expect(sum_gradients<Config, part>(params, gradients), false)) {
    const auto [batch, kv_head, k_begin] = own_keys<Config>(params, gradients);
    add_large_rows_to_keys<Config, part != Part::dv, part != Part::dk>(params, gradients, batch, kv_head,
                                                                       k_begin);
  }
}

template <class Config>
JIT_DEVICE void attention_backward_dkv(const AttentionParams& params, const GradientParams& gradients) {
  if constexpr (!Config::separate) {
    sum_all_gradients<Config, Part::both>(params, gradients);
  } else if (static_cast<int>(blockIdx.x) < params.heads_kv) {
    sum_all_gradients<Config, Part::dk>(params, gradients);
  } else {
    sum_all_gradients<Config, Part::dv>(params, gradients);
  }
}

}  // namespace jit::backward_dkv_mma_sync
