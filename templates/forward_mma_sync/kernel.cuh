// Attention forward with cp.async, ldmatrix and mma.sync: runs on every GPU from sm_80 on.
//
// A block owns tile_q queries of one head; each warp owns tile_q / warps of them and exchanges no scores with other warps.
// Above 256 columns of O two warps own the same queries, compute the same scores, and have half of the columns each. Keys
// and values pass through pipelines of stages_k and stages_v tiles of tile_kv:
//
//     wait for K(n) ─ barrier ─ load V(n + ahead) ─ S = Q Kᵀ ─ load K(n + ahead) ─ mask, softmax ─
//     wait for V(n) ─ barrier ─ [load K(n + 1) when K has one stage] ─ O += P V
//
// The first barrier also says that every warp is done with V(n − 1) and the second that it is done with K(n):
// what each load overwrites was last read before the barrier in front of it.
//
// Where only the device knows lengths (with dropout or split_keys), a block looks its tile up in the list of all tiles
// (base/varlen_tiles.cuh), and may find an empty place.
//
// With split_keys the sums of a span of keys are stored when its last tile is done (split_keys/waiting_spans.cuh).
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "forward_mma_sync/epilogue.cuh"
#include "forward_mma_sync/smem_layout.cuh"
#include "forward_mma_sync/traits.cuh"
#include "mainloop/key_scales.cuh"
#include "problem/entry_sequences.cuh"
#include "problem/functor.cuh"
#include "problem/kv_tiles.cuh"
#include "problem/masks.cuh"
#include "problem/scores.cuh"
#include "problem/zero_padding.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/ldmatrix.cuh"
#include "ptx/math.cuh"
#include "scheduling/query_block.cuh"
#include "split_keys/span_memory.cuh"
#include "steps/apply_functors.cuh"
#include "steps/dequant.cuh"
#include "steps/dropout.cuh"
#include "steps/mma_sync_products.cuh"
#include "steps/softmax.cuh"
#include "tiles/swizzled_tile.cuh"
#include "tiles/tile_copy.cuh"

namespace jit::forward_mma_sync {

/// Q of one warp as A fragments, held in registers or fetched from shared memory step by step.
template <class Config>
struct QueryFragments {
  using Traits = KernelTraits<Config>;
  unsigned registers[Config::q_in_registers ? Traits::head_dim_steps : 1][Traits::row_blocks][4];
  unsigned lane_address;  // of the row and chunk that this lane gives to ldmatrix, first step

  JIT_DEVICE void read(unsigned (&a)[Traits::row_blocks][4], int step) const {
#pragma unroll
    for (int m = 0; m < Traits::row_blocks; ++m) {
      ldmatrix_x4(a[m], Traits::QTile::advance(lane_address, m * 16, 2 * step));
    }
  }

  JIT_DEVICE explicit QueryFragments(unsigned tile)
      : lane_address(tile + Traits::QTile::offset(Traits::first_row() + lane_id() % 16, lane_id() / 16)) {}

  JIT_DEVICE void keep_in_registers() {
    if constexpr (Config::q_in_registers) {
#pragma unroll
      for (int step = 0; step < Traits::head_dim_steps; ++step) read(registers[step], step);
    }
  }

  JIT_DEVICE void get(unsigned (&a)[Traits::row_blocks][4], int step) const {
    if constexpr (Config::q_in_registers) {
#pragma unroll
      for (int m = 0; m < Traits::row_blocks; ++m) {
#pragma unroll
        for (int i = 0; i < 4; ++i) a[m][i] = registers[step][m][i];
      }
    } else {
      read(a, step);
    }
  }
};

/// The place of the thread's scores of the tile whose corner is (q_begin, k_begin).
template <class Config>
JIT_DEVICE ScorePlace score_place(int q_begin, int k_begin) {
  const int thread = reread_thread_index();
  const int warp_row = KernelTraits<Config>::first_row(thread / warp_size);
  return {q_begin + warp_row + MmaLayout::lane_row(thread), k_begin + MmaLayout::lane_column(thread)};
}

/// The block's producer of tiles out of `rows`, of which there are `row_end`.
template <class Config, class Tile, int columns, class Rows>
JIT_DEVICE auto tile_copy(const Rows& rows, int row_end) {
  return TileCopy<Tile, columns, KernelTraits<Config>::threads, Config::alignment, typename Config::Element>(
      rows, row_end);
}

/// The block's part of `zero_padding`, which those of the first head have.
template <class Config>
JIT_DEVICE void zero_padding_by_grid(const AttentionParams& params) {
  if (blockIdx.x != 0) return;
  constexpr int warps = KernelTraits<Config>::warps;
  const int block = static_cast<int>(blockIdx.z * gridDim.y + blockIdx.y);
  zero_padding<Config>(params, block * warps + warp_id(), static_cast<int>(gridDim.z * gridDim.y) * warps);
}

template <class Config>
JIT_DEVICE void attention_forward(const AttentionParams& params, const SpanMemory& span_memory = {}) {
  using Traits = KernelTraits<Config>;
  using Element = typename Config::Element;
  using Mask = typename Config::Mask;
  using Score = typename Config::Score;
  constexpr SmemLayout layout = smem_layout<Config>();
  extern __shared__ __align__(128) unsigned char smem[];
  const unsigned smem_base = smem_address(smem);

  if constexpr (has_entry_lengths<Config>) {
    zero_padding_by_grid<Config>(params);
    if (params.batch == 0) return;
  }
  const AllSequences<Config> all(params);
  const WorkTile work = query_block<Config, Config::tile_q>(params);
  const auto [batch, head, q_begin] = work;
  const auto& sequences = entry_of(all, params, batch);
  const BlockContext context = sequences.context(batch, head);
  const int seqlen_q = context.seqlen_q, seqlen_kv = context.seqlen_kv;
  // mutate: PlacesOfNobodyAreComputed
  if (has_entry_lengths<Config> && (q_begin < 0 || q_begin >= seqlen_q)) return;
  const int kv_head = sequences.kv_head(head);
  const auto q_copy = tile_copy<Config, typename Traits::QTile, Config::head_dim>(
      sequences.query_rows(batch, head), seqlen_q);
  const auto k_copy = tile_copy<Config, typename Traits::KTile, Config::head_dim>(
      sequences.key_rows(batch, kv_head), seqlen_kv);
  const auto v_copy = tile_copy<Config, typename Traits::VTile, Config::head_dim_v>(
      sequences.value_rows(batch, kv_head), seqlen_kv);
  const KeyScalesCopy<Config, Traits::threads> key_scales_copy(params, batch, kv_head, seqlen_kv);

  const Mask mask(context);
  const TileMask<Config> tile_mask(context);
  const Score score(context);
  const ScoreTile queries{q_begin, minimum(q_begin + Config::tile_q, seqlen_q), 0, 0};
  KvTiles<Mask, Config::tile_kv, Traits::ahead> tiles(
      mask, queries, mask.key_range(queries.q_begin, queries.q_end), seqlen_kv);

  int stage_k = 0, stage_v = 0;  // of the tile being multiplied
  const auto k_tile = [&](int stage) { return smem_base + layout.k + stage * Traits::KTile::bytes; };
  const auto key_scales = [&](int stage) {
    return smem_base + layout.key_scales + stage * Config::tile_kv * 4;  // mutate: TokensOfOneStage
  };
  const auto v_tile = [&](int stage) { return smem_base + layout.v + stage * Traits::VTile::bytes; };
  // Each load closes its group even when there is nothing to load, because no tile is left or (`ahead` is
  // negative) none begins so early: waits count groups.
  const auto load_k = [&](int ahead, int stage) {
    if (ahead >= 0 && tiles.has(ahead)) {
      k_copy.load(k_tile(stage), tiles.key(ahead));
      key_scales_copy.load(key_scales(stage), tiles.key(ahead));
    }
    cp_async_commit_group();
  };
  const auto load_v = [&](int ahead, int stage) {
    if (ahead >= 0 && tiles.has(ahead)) v_copy.load(v_tile(stage), tiles.key(ahead));
    cp_async_commit_group();
  };

  q_copy.load(smem_base + layout.q, q_begin);
  QueryFragments<Config> q(smem_base + layout.q);
  if constexpr (Config::q_in_registers) {
    cp_async_commit_group();
    cp_async_wait_group<0>();
    __syncthreads();
    q.keep_in_registers();
    __syncthreads();
  }
  // Q, when it stays in shared memory, is part of the first group and comes with it.
#pragma unroll
  for (int step = Traits::ahead; step >= 1; --step) {
    const int k = Traits::ahead_k - step, v = Traits::ahead_v - step;
    if (Traits::v_first) load_v(v, v);
    load_k(k, k);
    if (!Traits::v_first) load_v(v, v);
  }

  typename Traits::Output output = {};
  typename Traits::State state;
  BlockSpans<Config> spans(span_memory);
  Dequant<Config, typename Traits::Scores> scales(params, params.descale);
  scales.take_scores(work, Traits::first_row(), [&] { return context; });
  const float scale_log2 = exponent_scale<Score>(scales.of_scores());
  // mutate: EntriesAlike
  const auto dropout = dropout_head<Config>(params.dropout, params.heads_q, batch, head, params.tensors);

  for (; tiles.has(0); tiles.advance()) {
    const int stage_k_load = Config::stages_k == 1 ? 0 : (stage_k + Traits::ahead_k) % Config::stages_k;
    // mutate: LoadsIntoTheStageInUse
    const int stage_v_load = (stage_v + Traits::ahead_v) % Config::stages_v;

    cp_async_wait_group<Traits::pending_k>();  // mutate: WaitForK
    __syncthreads();                           // mutate: NoBarrierBeforeK
    if constexpr (Traits::v_first) {
      load_v(Traits::ahead_v, stage_v_load);
    } else {
      load_k(Traits::ahead_k, stage_k_load);
    }

    typename Traits::Scores scores;
    multiply_qk<Element, typename Traits::KTile>(scores, q, k_tile(stage_k));

    if constexpr (!Traits::v_first) {
      load_v(Traits::ahead_v, stage_v_load);
    } else if constexpr (Config::stages_k > 1) {
      load_k(Traits::ahead_k, stage_k_load);
    }

    scales.scale_scores(scores, key_scales(stage_k));  // mutate: TokensUnscaled
    if (!Score::is_identity || tiles.is_partial()) {
      apply_functors<MaskQuery::each_score>(scores, score_place<Config>(q_begin, tiles.key(0)), score,
                                            scales.of_scores(), tile_mask, context, tiles.is_partial());
    }
    if constexpr (has_block_factors<Config>) {  // mutate: SoftmaxWithoutFactors
      online_softmax<Traits::rescale, Element>(scores, output, state, scale_log2, scales.factors());
    } else {
      // mutate: RawProbabilities
      online_softmax<Traits::rescale, Element>(scores, output, state, scale_log2);
    }
    // Sums are those of all keys.
    const auto kept = kept_scores<QueriesByKeys, typename Traits::Scores>(
        dropout, q_begin + Traits::first_row(), tiles.key(0));

    cp_async_wait_group<Traits::pending_v>();  // mutate: NoWaitForV
    __syncthreads();                           // mutate: NoBarrierBeforeV
    if constexpr (Config::stages_k == 1) load_k(1, 0);
    if constexpr (is_fp8<Element>) {
      multiply_pv_fp8<Element, typename Traits::VTile>(output, scores, v_tile(stage_v));
    } else {
      const unsigned own_columns = Traits::first_column() * ElementTraits<Element>::bytes;
      multiply_pv<Element, typename Traits::VTile>(output, scores, v_tile(stage_v) + own_columns, kept);
    }

    if constexpr (Traits::has_spans) {
      if (tiles.has(1)) spans.go_on(tiles.key(0), tiles.key(1), output, state, scale_log2);
    }

    stage_k = stage_k + 1 == Config::stages_k ? 0 : stage_k + 1;  // mutate: LaterStageThanLoaded
    stage_v = stage_v + 1 == Config::stages_v ? 0 : stage_v + 1;
  }

  store_output<Config>(params, output, state, spans, scale_log2, scales, smem_base + layout.o);
}

}  // namespace jit::forward_mma_sync
