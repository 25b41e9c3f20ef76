// The gradient of the queries with cp.async, ldmatrix and mma.sync: runs on every GPU from sm_80 on.
//
// A block owns tile_q queries of one head; each warp owns tile_q / warps of them. Keys and values come by in tiles of
// tile_kv through a pipeline of `stages` buffers:
//
//     wait for K(n), V(n) ─ barrier ─ load K, V(n + ahead) ─ S = Q Kᵀ ─ dP = dO Vᵀ ─ P, dS ─ dQ += dS K
//
// The barrier also says that every warp is done with the tile before, whose buffers the load overwrites; a single
// buffer is loaded behind a barrier of its own. In the beginning the block works out delta = do · o − dlse of its
// queries and leaves it, beside their LSE, to the kernel of dK and dV.
#pragma once

#include "backward_dq_mma_sync/large_rows.cuh"
#include "backward_dq_mma_sync/smem_layout.cuh"
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
#include "ptx/cp_async.cuh"
#include "scheduling/query_block.cuh"
#include "steps/dropout.cuh"
#include "steps/mma_sync_products.cuh"
#include "steps/query_statistics.cuh"
#include "steps/row_origin.cuh"
#include "steps/score_gradients.cuh"
#include "steps/store_product.cuh"
#include "steps/tile_fragments.cuh"
#include "tiles/accumulator.cuh"
#include "tiles/swizzled_tile.cuh"
#include "tiles/tile_copy.cuh"

namespace jit::backward_dq_mma_sync {

template <class Config>
struct KernelTraits {
  static_assert(Config::head_dim % 8 == 0 && Config::head_dim >= 8 && Config::head_dim <= 256,
                "head_dim must be a multiple of 8 from 8 to 256");
  static_assert(Config::head_dim_v % 8 == 0 && Config::head_dim_v >= 8 && Config::head_dim_v <= 256,
                "head_dim_v must be a multiple of 8 from 8 to 256");
  static_assert(Config::tile_q % (16 * Config::warps) == 0,
                "tile_q must be a multiple of 16 rows for each warp");
  static_assert(Config::tile_kv % 16 == 0, "tile_kv must be a multiple of mma's k");

  static constexpr int threads = Config::warps * warp_size;
  static constexpr int warp_rows = Config::tile_q / Config::warps;
  static constexpr int row_blocks = warp_rows / 16;
  static constexpr int padded = padded_head_dim(Config::head_dim);
  static constexpr int padded_v = padded_head_dim(Config::head_dim_v);
  static constexpr int per_chunk = ElementTraits<typename Config::Element>::per_chunk;
  static constexpr int ahead = Config::stages - 1;  ///< tiles that the loads are ahead

  // Of one warp.
  using Scores = Accumulator<MmaLayout, warp_rows, Config::tile_kv>;
  using Gradient = Accumulator<MmaLayout, warp_rows, padded>;

  using QTile = SmemTile<Config::tile_q, padded / per_chunk>;
  using DoTile = SmemTile<Config::tile_q, padded_v / per_chunk>;
  using KTile = SmemTile<Config::tile_kv, padded / per_chunk>;
  using VTile = SmemTile<Config::tile_kv, padded_v / per_chunk>;
};

/// Of the warp's queries, left to the kernel of dK and dV, too.
template <class Config>
__device__ __forceinline__ auto write_query_statistics(const SequencesOf<Config>& sequences,
                                                       const Gradients<Config>& gradients,
                                                       const DropoutParams& dropout, int batch, int head,
                                                       int first_query) {
  const long long places = statistic_rows(sequences.q(batch).length);
  float* const lse_log2 = gradients.lse_log2(batch, head);
  float* const delta = gradients.delta(batch, head);
  RowOrigin* const origins = gradients.origins(batch, head);
  return query_statistics<Config, typename KernelTraits<Config>::Scores>(
      sequences, gradients, dropout, batch, head, first_query,
      [&](int query, float own_lse, float own_delta, bool is_large) {
        if (query >= places) return;
        lse_log2[query] = own_lse;
        delta[query] = own_delta;
        if (own_lse == -negative_infinity() && !is_large) origins[query] = no_origin();
      });
}

template <class Config>
__device__ __forceinline__ void attention_backward_dq(const AttentionParams& params,
                                                      const GradientParams& gradient_params,
                                                      const DropoutParams& dropout_params = {}) {
  using Traits = KernelTraits<Config>;
  using Element = typename Config::Element;
  using Mask = typename Config::Mask;
  using Score = typename Config::Score;
  using Scores = typename Traits::Scores;
  constexpr SmemLayout layout = smem_layout<Config>();
  constexpr int ahead = Traits::ahead;
  extern __shared__ __align__(128) unsigned char smem[];
  const unsigned smem_base = smem_address(smem);

  const auto [batch, head, q_begin] = query_block<Config, Config::tile_q>(params);
  const SequencesOf<Config> sequences(params, batch);
  const Gradients<Config> gradients(params, gradient_params, sequences);
  const BlockContext context = sequences.context(batch, head);
  const int seqlen_q = context.seqlen_q, seqlen_kv = context.seqlen_kv;
  if (has_entry_lengths<Config> && (q_begin < 0 || q_begin >= seqlen_q)) return;
  const int kv_head = sequences.kv_head(head);
  const TileCopy<typename Traits::QTile, Config::head_dim, Traits::threads, Config::alignment, Element>
      q_copy(sequences.query_rows(batch, head), seqlen_q);
  const TileCopy<typename Traits::DoTile, Config::head_dim_v, Traits::threads, Config::alignment, Element>
      do_copy(gradients.do_rows(batch, head), seqlen_q);
  const TileCopy<typename Traits::KTile, Config::head_dim, Traits::threads, Config::alignment, Element>
      k_copy(sequences.key_rows(batch, kv_head), seqlen_kv);
  const TileCopy<typename Traits::VTile, Config::head_dim_v, Traits::threads, Config::alignment, Element>
      v_copy(sequences.value_rows(batch, kv_head), seqlen_kv);

  const Mask mask(context);
  const TileMask<Config> tile_mask(context);
  const Score score(context);
  const ScoreTile queries{q_begin, minimum(q_begin + Config::tile_q, seqlen_q), 0, 0};
  KvTiles<Mask, Config::tile_kv, ahead> tiles(mask, queries, mask.key_range(queries.q_begin, queries.q_end),
                                              seqlen_kv);
  const auto k_tile = [&](int stage) { return smem_base + layout.k + stage * layout.stage_bytes; };
  const auto v_tile = [&](int stage) { return smem_base + layout.v + stage * layout.stage_bytes; };
  // Each load closes its group even when no tile is left: waits count groups.
  const auto load = [&](int tile_ahead, int stage) {
    if (tiles.has(tile_ahead)) {
      k_copy.load(k_tile(stage), tiles.key(tile_ahead));
      v_copy.load(v_tile(stage), tiles.key(tile_ahead));
    }
    cp_async_commit_group();
  };

  // Q and dO are a group of their own: older than all that is waited for.
  q_copy.load(smem_base + layout.q, q_begin);
  do_copy.load(smem_base + layout.d_o, q_begin);
  cp_async_commit_group();
#pragma unroll
  for (int i = 0; i < ahead; ++i) load(i, i);

  const int warp_row = warp_id() * Traits::warp_rows;
  const auto statistics =
      write_query_statistics<Config>(sequences, gradients, dropout_params, batch, head, q_begin + warp_row);
  const TileFragments<typename Traits::QTile, Traits::row_blocks> q(smem_base + layout.q, warp_row);
  const TileFragments<typename Traits::DoTile, Traits::row_blocks> d_o(smem_base + layout.d_o, warp_row);
  const int first_query = q_begin + warp_row + MmaLayout::lane_row(lane_id());
  const float exponent = score_exponent<Score>(params.softmax_scale);
  const auto dropout = dropout_head<Config>(dropout_params, params.heads_q, batch, head);

  typename Traits::Gradient dq = {};
  for (int stage = 0; tiles.has(0); tiles.advance(), stage = stage + 1 == Config::stages ? 0 : stage + 1) {
    if constexpr (ahead == 0) {
      __syncthreads();
      load(0, 0);
      cp_async_wait_group<0>();
    } else {
      cp_async_wait_group<ahead - 1>();  // mutate: NoWaitForKeysOfDq
    }
    __syncthreads();  // mutate: NoBarrierInDq
    if constexpr (ahead > 0) load(ahead, (stage + ahead) % Config::stages);

    Scores scores, d_scores;
    multiply_qk<Element, typename Traits::KTile>(scores, q, k_tile(stage));
    begin_at_minus(d_scores, statistics.delta);
    add_qk<Element, typename Traits::VTile>(d_scores, d_o, v_tile(stage));
    drop_to_minus(d_scores, kept_scores<QueriesByKeys, Scores>(dropout, q_begin + warp_row, tiles.key(0)),
                  statistics.delta);

    const int first_key = tiles.key(0) + MmaLayout::lane_column(lane_id());
    differentiate_score<QueriesByKeys>(scores, d_scores, first_query, first_key, score, params.softmax_scale,
                                       context);
    if (tiles.is_partial())
      drop_masked_scores<QueriesByKeys>(scores, first_query, first_key, tile_mask, context);
    exponentiate_scores(scores, exponent, statistics.lse_log2);
    multiply_by_probabilities<Score>(d_scores, scores);
    multiply_pv<Element, typename Traits::KTile>(dq, d_scores, k_tile(stage));
  }

  // Copies may still be in flight and other warps still multiplying with what lies here.
  cp_async_wait_group<0>();
  __syncthreads();  // mutate: NoBarrierBeforeDqLeaves
  store_product<typename Traits::QTile, Config::head_dim, Config::alignment>(
      // mutate: DqOfMmaUnscaled
      dq, over_keep_probability<Config>(params.softmax_scale, dropout_params), gradients.dq_rows(batch, head),
      q_begin + warp_row, seqlen_q, smem_base + layout.q, warp_row);
  if (__builtin_expect(statistics.has_large, false))  // mutate: LargeRowsOfTwoPassesAreLeftToLse
    write_large_rows<Config>(params, gradient_params, dropout_params, sequences, batch, head,
                             q_begin + warp_row, minimum(Traits::warp_rows, seqlen_q - q_begin - warp_row));
}

}  // namespace jit::backward_dq_mma_sync
