// The gradients of keys and values with cp.async, ldmatrix and mma.sync: runs on every GPU from sm_80 on.
//
// A block owns tile_kv keys of one KV head; each warp owns tile_kv / warps of them. The queries of all heads that share
// the keys come by in tiles of tile_q through a pipeline of `stages` buffers. Products have keys as rows, so that P
// and dS leave the registers that they were computed in only as the left operands of the next products:
//
//     wait for Q(n), dO(n) ─ barrier ─ load Q, dO(n + ahead) ─ Sᵀ = K Qᵀ ─ dPᵀ = V dOᵀ ─ P, dS ─
//     dV += Pᵀ dO ─ dK += dSᵀ Q
//
// The barrier also says that every warp is done with the tile before, whose buffers the load overwrites; a single
// buffer is loaded behind a barrier of its own. Gradients are sums in a fixed order by one warp: equal inputs give
// bitwise identical results, and nothing needs to be zeroed or converted.
#pragma once

#include "backward_dkv_mma_sync/large_rows.cuh"
#include "backward_dkv_mma_sync/smem_layout.cuh"
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
#include "problem/variable_sequences.cuh"
#include "ptx/cp_async.cuh"
#include "scheduling/varlen_place.cuh"
#include "steps/dropout.cuh"
#include "steps/mma_sync_products.cuh"
#include "steps/score_gradients.cuh"
#include "steps/store_product.cuh"
#include "steps/tile_fragments.cuh"
#include "tiles/accumulator.cuh"
#include "tiles/swizzled_tile.cuh"
#include "tiles/tile_copy.cuh"

namespace jit::backward_dkv_mma_sync {

template <class Config>
struct KernelTraits {
  static_assert(Config::head_dim % 8 == 0 && Config::head_dim >= 8 && Config::head_dim <= 256,
                "head_dim must be a multiple of 8 from 8 to 256");
  static_assert(Config::head_dim_v % 8 == 0 && Config::head_dim_v >= 8 && Config::head_dim_v <= 256,
                "head_dim_v must be a multiple of 8 from 8 to 256");
  static_assert(Config::tile_kv % (16 * Config::warps) == 0,
                "tile_kv must be a multiple of 16 rows for each warp");
  static_assert(Config::tile_q % 16 == 0, "tile_q must be a multiple of mma's k");

  static constexpr int threads = Config::warps * warp_size;
  static constexpr int warp_rows = Config::tile_kv / Config::warps;
  static constexpr int row_blocks = warp_rows / 16;
  static constexpr int padded = padded_head_dim(Config::head_dim);
  static constexpr int padded_v = padded_head_dim(Config::head_dim_v);
  static constexpr int per_chunk = ElementTraits<typename Config::Element>::per_chunk;
  static constexpr int ahead = Config::stages - 1;  ///< tiles that the loads are ahead

  // Of one warp.
  using Scores = Accumulator<MmaLayout, warp_rows, Config::tile_q>;
  using KeyGradient = Accumulator<MmaLayout, warp_rows, padded>;
  using ValueGradient = Accumulator<MmaLayout, warp_rows, padded_v>;

  using KTile = SmemTile<Config::tile_kv, padded / per_chunk>;
  using VTile = SmemTile<Config::tile_kv, padded_v / per_chunk>;
  using QTile = SmemTile<Config::tile_q, padded / per_chunk>;
  using DoTile = SmemTile<Config::tile_q, padded_v / per_chunk>;
};

/// Which gradients a block sums.
enum class Part { both, dk, dv };

/// The tile of this block in a grid of (heads, key tiles, batch), the heads of dK in front of those of dV where blocks
/// sum only one of them. Of varlen keys, in one of (heads, places of tiles), perhaps nobody's.
struct KeyBlock {
  int batch;
  int kv_head;
  int k_begin;
};
template <class Config>
__device__ __forceinline__ KeyBlock key_block(const AttentionParams& params,
                                              const GradientParams& gradients) {
  const int kv_head = static_cast<int>(blockIdx.x) % params.heads_kv;
  const int tile = gradients.k_tile_begin + static_cast<int>(blockIdx.y);
  if constexpr (Config::sequences_kv == SequenceKind::varlen) {
    const VariableSequences<Config> sequences(params);
    const auto [batch, first_key] = varlen_place<Config::tile_kv>(
        tile, params.batch, [&](int entry) { return sequences.kv(entry).begin; });
    return {.batch = batch, .kv_head = kv_head, .k_begin = first_key};
  } else {
    return {.batch = params.batch_begin + static_cast<int>(blockIdx.z),
            .kv_head = kv_head,
            .k_begin = tile * Config::tile_kv};
  }
}

/// Starts the copy of the numbers of the tile's queries to shared address `tile`, zeros behind the last one.
template <class Config>
__device__ __forceinline__ void load_statistics(unsigned tile, const float* numbers, int first,
                                                int seqlen_q) {
  constexpr int chunk = chunk_bytes / static_cast<int>(sizeof(float));
  for (int i = threadIdx.x * chunk; i < Config::tile_q; i += KernelTraits<Config>::threads * chunk)
    cp_async_zfill<chunk_bytes>(tile + i * static_cast<unsigned>(sizeof(float)), numbers + first + i,
                                first + i < statistic_rows(seqlen_q));
}

/// Returns whether the call has large rows, which are left out.
template <class Config, Part part>
__device__ __forceinline__ bool sum_gradients(const AttentionParams& params,
                                              const GradientParams& gradient_params,
                                              const DropoutParams& dropout_params) {
  using Traits = KernelTraits<Config>;
  using Element = typename Config::Element;
  using Score = typename Config::Score;
  using Scores = typename Traits::Scores;
  constexpr SmemLayout layout = smem_layout<Config>();
  constexpr int ahead = Traits::ahead;
  constexpr bool has_dk = part != Part::dv, has_dv = part != Part::dk;
  extern __shared__ __align__(128) unsigned char smem[];
  const unsigned smem_base = smem_address(smem);

  const auto [batch, kv_head, k_begin] = key_block<Config>(params, gradient_params);
  const SequencesOf<Config> sequences(params, batch);
  const Gradients<Config> gradients(params, gradient_params, sequences);
  const int seqlen_q = sequences.q(batch).length, seqlen_kv = sequences.kv(batch).length;
  // mutate: PlacesBeforeTheFirstSequenceAreTiles
  if (has_entry_lengths<Config> && (k_begin < 0 || k_begin >= seqlen_kv))
    return has_large_rows(gradient_params);
  QueryTiles<Config, ahead> tiles(sequences, batch, kv_head,
                                  {0, 0, k_begin, minimum(k_begin + Config::tile_kv, seqlen_kv)});

  const auto q_tile = [&](int stage) { return smem_base + layout.q + stage * layout.stage_bytes; };
  const auto do_tile = [&](int stage) { return smem_base + layout.d_o + stage * layout.stage_bytes; };
  const auto lse_tile = [&](int stage) { return smem_base + layout.lse_log2 + stage * layout.stage_bytes; };
  const auto delta_tile = [&](int stage) { return smem_base + layout.delta + stage * layout.stage_bytes; };
  // Each load closes its group even when no tile is left: waits count groups.
  const auto load = [&](int tile_ahead, int stage) {
    if (tiles.has(tile_ahead)) {
      const int head = tiles.head(tile_ahead), query = tiles.query(tile_ahead);
      TileCopy<typename Traits::QTile, Config::head_dim, Traits::threads, Config::alignment, Element>(
          sequences.query_rows(batch, head), seqlen_q)
          .load(q_tile(stage), query);
      TileCopy<typename Traits::DoTile, Config::head_dim_v, Traits::threads, Config::alignment, Element>(
          gradients.do_rows(batch, head), seqlen_q)
          .load(do_tile(stage), query);
      // mutate: StatisticsOfTheFirstHead
      load_statistics<Config>(lse_tile(stage), gradients.lse_log2(batch, head), query, seqlen_q);
      if (has_dk) load_statistics<Config>(delta_tile(stage), gradients.delta(batch, head), query, seqlen_q);
    }
    cp_async_commit_group();
  };

  // K and V are a group of their own: older than all that is waited for.
  TileCopy<typename Traits::KTile, Config::head_dim, Traits::threads, Config::alignment, Element>(
      sequences.key_rows(batch, kv_head), seqlen_kv)
      .load(smem_base + layout.k, k_begin);
  if (has_dk) {
    TileCopy<typename Traits::VTile, Config::head_dim_v, Traits::threads, Config::alignment, Element>(
        sequences.value_rows(batch, kv_head), seqlen_kv)
        .load(smem_base + layout.v, k_begin);
  }
  cp_async_commit_group();
#pragma unroll
  for (int i = 0; i < ahead; ++i) load(i, i);

  const int warp_row = warp_id() * Traits::warp_rows;
  const TileFragments<typename Traits::KTile, Traits::row_blocks> k(smem_base + layout.k, warp_row);
  const TileFragments<typename Traits::VTile, Traits::row_blocks> v(smem_base + layout.v, warp_row);
  const int first_key = k_begin + warp_row + MmaLayout::lane_row(lane_id());
  const int lane_query = MmaLayout::lane_column(lane_id());
  const unsigned lane_statistic = lane_query * static_cast<unsigned>(sizeof(float));
  const float exponent = score_exponent<Score>(params.softmax_scale);

  typename Traits::KeyGradient dk = {};
  typename Traits::ValueGradient dv = {};
  for (int stage = 0; tiles.has(0); tiles.advance(), stage = stage + 1 == Config::stages ? 0 : stage + 1) {
    if constexpr (ahead == 0) {
      __syncthreads();
      load(0, 0);
      cp_async_wait_group<0>();
    } else {
      cp_async_wait_group<ahead - 1>();  // mutate: NoWaitForQueriesOfDkv
    }
    __syncthreads();  // mutate: NoBarrierInDkv
    if constexpr (ahead > 0) load(ahead, (stage + ahead) % Config::stages);

    const BlockContext context = sequences.context(batch, tiles.head(0));
    const auto dropout = dropout_head<Config>(dropout_params, params.heads_q, batch, context.head);
    const auto kept = kept_scores<KeysByQueries, Scores>(dropout, tiles.query(0), k_begin + warp_row);
    const Score score(context);
    const int first_query = tiles.query(0) + lane_query;
    Scores scores, d_scores;
    multiply_qk<Element, typename Traits::QTile>(scores, k, q_tile(stage));
    if constexpr (has_dk) {
      begin_at_minus(d_scores, ColumnNumbers{delta_tile(stage) + lane_statistic});
      add_qk<Element, typename Traits::DoTile>(d_scores, v, do_tile(stage));
      drop_to_minus(d_scores, kept, ColumnNumbers{delta_tile(stage) + lane_statistic});
      differentiate_score<KeysByQueries>(scores, d_scores, first_key, first_query, score,
                                         params.softmax_scale, context);
    } else {
      apply_score<KeysByQueries>(scores, first_key, first_query, score, params.softmax_scale, context);
    }
    if (tiles.is_partial()) {
      const TileMask<Config> mask(context);
      drop_masked_scores<KeysByQueries>(scores, first_key, first_query, mask, context);
    }
    exponentiate_scores(scores, exponent, ColumnNumbers{lse_tile(stage) + lane_statistic});
    // dS is of all probabilities, dV of those that are kept.
    if constexpr (has_dv)
      // mutate: FactorsOfDv
      multiply_pv<Element, typename Traits::DoTile>(dv, scores, do_tile(stage), kept);
    if constexpr (has_dk) {
      multiply_by_probabilities<Score>(d_scores, scores);
      multiply_pv<Element, typename Traits::QTile>(dk, d_scores, q_tile(stage));
    }
  }

  // Copies may still be in flight and other warps still multiplying with what lies here.
  cp_async_wait_group<0>();
  __syncthreads();
  const bool has_large = has_large_rows(gradient_params);  // on its way while gradients are stored
  if constexpr (has_dk) {
    store_product<typename Traits::KTile, Config::head_dim, Config::alignment>(
        dk, over_keep_probability<Config>(params.softmax_scale, dropout_params),
        gradients.dk_rows(batch, kv_head), k_begin + warp_row, seqlen_kv, smem_base + layout.k, warp_row);
  }
  if constexpr (has_dv) {
    store_product<typename Traits::VTile, Config::head_dim_v, Config::alignment>(
        dv, over_keep_probability<Config>(1.0f, dropout_params), gradients.dv_rows(batch, kv_head),
        k_begin + warp_row, seqlen_kv, smem_base + layout.v, warp_row);
  }
  return has_large;
}

/// Of a block that sums these gradients, those of large rows behind the others.
template <class Config, Part part>
__device__ __forceinline__ void sum_all_gradients(const AttentionParams& params,
                                                  const GradientParams& gradients,
                                                  const DropoutParams& dropout) {
  if (__builtin_expect(sum_gradients<Config, part>(params, gradients, dropout), false)) {
    const auto [batch, kv_head, k_begin] = key_block<Config>(params, gradients);
    add_large_rows_to_keys<Config, part != Part::dv, part != Part::dk>(params, gradients, dropout, batch,
                                                                       kv_head, k_begin);
  }
}

template <class Config>
__device__ __forceinline__ void attention_backward_dkv(const AttentionParams& params,
                                                       const GradientParams& gradients,
                                                       const DropoutParams& dropout = {}) {
  if constexpr (!Config::separate) {
    sum_all_gradients<Config, Part::both>(params, gradients, dropout);
  } else if (static_cast<int>(blockIdx.x) < params.heads_kv) {
    sum_all_gradients<Config, Part::dk>(params, gradients, dropout);
  } else {
    sum_all_gradients<Config, Part::dv>(params, gradients, dropout);
  }
}

}  // namespace jit::backward_dkv_mma_sync
