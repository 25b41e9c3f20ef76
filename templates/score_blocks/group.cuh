// Probabilities of blocks of keys, summed over the heads that share keys (NSA): the tile of keys lies still while the tiles of
// queries of a group's heads go by, so that what leaves the registers is a group's, not a head's.
#pragma once

#include "pipeline/warpgroup_order_barrier.cuh"
#include "problem/gradients.cuh"
#include "ptx/math.cuh"
#include "ptx/warpgroup.cuh"
#include "ptx/wgmma.cuh"
#include "score_blocks/work.cuh"
#include "steps/apply_functors.cuh"
#include "steps/score_gradients.cuh"
#include "tiles/box_copy.cuh"
#include "tiles/tile_copy.cuh"

namespace jit {

/// The tiles of keys of an item: those that some head of the group sees, and one ahead, whose last key may reach into the first
/// block of the item.
template <class Config>
struct ScoreGroup {
  ScoreBlocksEntry<Config> entry;
  int first_head;
  int tile_begin;

  /// By whole warps.
  JIT_DEVICE ScoreGroup(const AttentionParams& params, const ScoreBlocksItem<Config>& item)
      : entry(params, of_head(item, item.head * Config::gqa_ratio)),
        first_head(item.head * Config::gqa_ratio),
        tile_begin(maximum(item.tile_begin - (Config::key_span > 1 ? 1 : 0), 0)) {
#pragma unroll 1
    for (int g = 1; g < Config::gqa_ratio; ++g) {
      const ScoreBlocksEntry<Config> own(params, of_head(item, first_head + g));
      entry.seen_begin = minimum(entry.seen_begin, own.seen_begin);
      entry.seen_end = maximum(entry.seen_end, own.seen_end);
    }
  }

 private:
  static JIT_DEVICE ScoreBlocksItem<Config> of_head(ScoreBlocksItem<Config> item, int head) {
    item.head = head;
    return item;
  }
};

/// By one warp.
template <class Traits>
JIT_DEVICE void load_groups(const ScoreBlocksParams& params, unsigned smem) {
  using Config = typename Traits::Config;
  using Q = typename Traits::Q;
  using K = typename Traits::K;
  constexpr bool is_varlen_q = Config::sequences_q == SequenceKind::varlen;
  constexpr bool is_varlen_kv = Config::sequences_kv == SequenceKind::varlen;
  typename Traits::QPipeline q(smem, Traits::layout.q);
  typename Traits::KPipeline k(smem, Traits::layout.k);
#pragma unroll 1
  for (int i = static_cast<int>(blockIdx.x); i < params.items; i += static_cast<int>(gridDim.x)) {
    const ScoreBlocksItem<Config> item(params, i);
    const ScoreGroup<Config> group(params.attention, item);
    const ScoreBlocksEntry<Config>& entry = group.entry;
    if (!entry.is_there(item)) continue;
#pragma unroll 1
    for (int tile = group.tile_begin; tile < item.tile_end; ++tile) {
      if (!entry.sees(tile)) continue;
      k.producer_acquire();  // mutate: GroupKeysLoadedEarly
      if (lane_id() == 0) {
        mbarrier_arrive_expect_tx(k.full(), K::bytes);
        load_tile<K>(k.tile(), params.k, k.full(),
                     score_row_place<is_varlen_kv>(entry.sequences.kv(item.batch), item.batch, item.head,
                                                   tile * score_blocks_keys));
      }
      __syncwarp();
      k.advance();
#pragma unroll 1
      for (int g = 0; g < Config::gqa_ratio; ++g) {
        q.producer_acquire();  // mutate: GroupQueriesLoadedEarly
        if (lane_id() == 0) {
          mbarrier_arrive_expect_tx(q.full(), Q::bytes);
          load_tile<Q>(q.tile(), params.q, q.full(),
                       score_row_place<is_varlen_q>(entry.sequences.q(item.batch), item.batch,
                                                    group.first_head + g, item.q_begin));
        }
        __syncwarp();
        q.advance();
      }
    }
  }
}

template <class Traits>
class ScoreGroupConsumer {
  using Config = typename Traits::Config;
  using Q = typename Traits::Q;
  using K = typename Traits::K;
  using Scores = typename Traits::Scores;
  using Score = typename Config::Score;
  using Mask = typename Config::Mask;
  using Item = ScoreBlocksItem<Config>;
  static constexpr int size = Config::block_size;
  static constexpr MaskQuery mask_query = has_row_range<Mask> ? MaskQuery::shortest : MaskQuery::each_score;

 public:
  JIT_DEVICE ScoreGroupConsumer(const ScoreBlocksParams& params, unsigned smem, int consumer)
      : params_(params),
        exponent_((Score::is_identity ? params.attention.softmax_scale : 1.0f) * log2_e),
        first_row_(consumer * rows_per_warpgroup),
        q_(smem, Traits::layout.q),
        k_(smem, Traits::layout.k),
        order_(consumer) {}

  JIT_DEVICE void run() {
#pragma unroll 1
    for (int i = static_cast<int>(blockIdx.x); i < params_.items; i += static_cast<int>(gridDim.x)) {
      const Item item(params_, i);
      const ScoreGroup<Config> group(params_.attention, item);
      if (!group.entry.is_there(item)) continue;
      float left[Scores::rows] = {};
#pragma unroll 1
      for (int tile = group.tile_begin; tile < item.tile_end; ++tile) {
        Scores sums;
        sums.clear();
        if (group.entry.sees(tile)) add_heads(item, group, tile, sums);
        spread(sums, left);
        if (tile >= item.tile_begin) write(item, group, tile, sums);
      }
    }
  }

 private:
  JIT_DEVICE int first_query(const Item& item) const {
    return item.q_begin + first_row_ + warp_id() % 4 * MmaLayout::block_rows + MmaLayout::lane_row(lane_id());
  }

  JIT_DEVICE void add_heads(const Item& item, const ScoreGroup<Config>& group, int tile, Scores& sums) {
    k_.consumer_wait();  // mutate: GroupKeysReadEarly
#pragma unroll 1
    for (int g = 0; g < Config::gqa_ratio; ++g) {
      q_.consumer_wait();  // mutate: GroupQueriesReadEarly
      Scores scores;
      order_.wait();
      wgmma_fence();  // mutate: NoFenceBeforeGroupScores
      Config::template wgmma_qk<Q, K>(scores.registers[0],
                                      lower_word(Q::along_columns(q_.tile(), first_row_, 0)),
                                      lower_word(K::along_columns(k_.tile(), 0, 0)));
      wgmma_commit_group();
      order_.pass();
      add(item, group, group.first_head + g, tile, scores, sums);
    }
    k_.consumer_release();  // mutate: GroupKeysNeverReleased
    k_.advance();
  }

  // Adds the probabilities of a head, whose product is under way.
  JIT_DEVICE void add(const Item& item, const ScoreGroup<Config>& group, int head, int tile, Scores& scores,
                      Scores& sums) {
    const ScoreBlocksEntry<Config>& entry = group.entry;
    const BlockContext context = entry.sequences.context(item.batch, head);
    const int query = first_query(item), first_key = tile * score_blocks_keys;
    const int key = first_key + MmaLayout::lane_column(lane_id()), key_end = first_key + score_blocks_keys;
    const auto lse_rows = entry.sequences.lse_rows(item.batch, head);
    float lse[Scores::rows];
    Scores::for_each_row(query, [&](int r, int row) {
      lse[r] = lse_exponent(row < context.seqlen_q ? *lse_rows.at(row) : negative_infinity());
    });
    const Mask mask(context);
    const ScoreTile asked{item.q_begin, entry.q_end, first_key, minimum(key_end, context.seqlen_kv)};
    const bool is_partial = mask.classify(asked) != TileClass::full || key_end > context.seqlen_kv;
    wgmma_wait_group<0>();  // mutate: GroupScoresReadEarly
    wgmma_hold(scores.registers[0]);
    q_.consumer_release();  // mutate: GroupQueriesNeverReleased
    q_.advance();
    apply_score<QueriesByKeys>(scores, query, key, Score(context), params_.attention.softmax_scale, context);
    // mutate: MaskedKeysHaveProbabilities
    if (is_partial) drop_masked<mask_query>(scores, {query, key}, mask, context);
    Scores::for_each_place([&](int r, int n, int i) {
      sums.at(r, n, i) += ex2(__fmaf_rn(scores.at(r, n, i), exponent_, -lse[r]));
    });
  }

  // Adds to each key the one before it, where keys span two strides. `left`: the last lane's last key, of the tile before.
  static JIT_DEVICE void spread(Scores& sums, float (&left)[Scores::rows]) {
    if constexpr (Config::key_span > 1) {
      const bool is_last = lane_id() % 4 == 3;
      const int neighbor = lane_id() / 4 * 4 + (lane_id() + 3) % 4;
#pragma unroll
      for (int r = 0; r < Scores::rows; ++r) {
        float before = left[r];
        left[r] = sums.at(r, Scores::column_blocks - 1, 1);
#pragma unroll
        for (int n = 0; n < Scores::column_blocks; ++n) {
          const float last = sums.at(r, n, 1);
          sums.at(r, n, 1) += sums.at(r, n, 0);
          sums.at(r, n, 0) += __shfl_sync(full_warp, is_last ? before : last, neighbor);
          before = last;
        }
      }
    }
  }

  // A block of up to 8 strides lies in a block of columns, of which a lane has two; a larger one in several.
  JIT_DEVICE void write(const Item& item, const ScoreGroup<Config>& group, int tile,
                        const Scores& sums) const {
    const TensorStrides& strides = params_.score_strides;
    const Sequence rows = group.entry.sequences.q(item.batch);
    const long long batch = Config::sequences_q == SequenceKind::varlen ? 0 : item.batch;
    float* const head = params_.scores + batch * strides.batch + item.head * strides.head;
    const int lane = lane_id() % 4, first = tile * Traits::blocks;
    Scores::for_each_row(first_query(item), [&](int r, int query) {
      float* const row = head + (rows.begin + static_cast<long long>(query)) * strides.seq;
      const auto put = [&](bool is_own, int block, float sum) {
        // mutate: GroupBlocksBehindTheLastOne
        if (is_own && query < group.entry.context.seqlen_q && block < params_.blocks) row[block] = sum;
      };
      if constexpr (size == 1) {
#pragma unroll
        for (int n = 0; n < Scores::column_blocks; ++n) {
          put(true, first + 8 * n + 2 * lane, sums.at(r, n, 0));
          put(true, first + 8 * n + 2 * lane + 1, sums.at(r, n, 1));
        }
      } else {
        constexpr int columns = maximum(size / 8, 1);
#pragma unroll
        for (int n = 0; n < Scores::column_blocks; n += columns) {
          float sum = 0;
#pragma unroll
          for (int c = n; c < n + columns; ++c) sum += sums.at(r, c, 0) + sums.at(r, c, 1);
          if constexpr (size >= 4) sum += __shfl_xor_sync(full_warp, sum, 1);
          if constexpr (size >= 8) sum += __shfl_xor_sync(full_warp, sum, 2);
          constexpr int lanes = minimum(size / 2, 4);
          put(lane % lanes == 0, first + (8 * n + 2 * lane) / size, sum);
        }
      }
    });
  }

  const ScoreBlocksParams& params_;
  const float exponent_;
  const int first_row_;
  typename Traits::QPipeline q_;
  typename Traits::KPipeline k_;
  // Products of one at a time, as in ScoreBlocksConsumer.
  const WarpgroupOrderBarrier<Traits> order_;
};

}  // namespace jit
