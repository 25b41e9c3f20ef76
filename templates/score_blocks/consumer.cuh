// A consumer: 64 queries by the keys of each tile, whose scores are reduced over blocks of keys in registers: within a lane, and
// then over the four that share a row.
#pragma once

#include "pipeline/warpgroup_order_barrier.cuh"
#include "ptx/math.cuh"
#include "ptx/warpgroup.cuh"
#include "ptx/wgmma.cuh"
#include "score_blocks/work.cuh"
#include "steps/apply_functors.cuh"
#include "steps/score_gradients.cuh"

namespace jit {

template <class Traits>
class ScoreBlocksConsumer {
  using Config = typename Traits::Config;
  using Q = typename Traits::Q;
  using K = typename Traits::K;
  using Scores = typename Traits::Scores;
  using Score = typename Config::Score;
  using Mask = typename Config::Mask;
  using Item = ScoreBlocksItem<Config>;
  using Entry = ScoreBlocksEntry<Config>;
  static constexpr int blocks = Traits::blocks, lane_blocks = Scores::column_blocks / blocks;
  static constexpr bool is_mean = Config::is_mean;
  static constexpr MaskQuery mask_query = has_row_range<Mask> ? MaskQuery::shortest : MaskQuery::each_score;
  // A lane ends with each fourth of the values of its rows, block after block, or with one of two.
  static constexpr int values = Scores::rows * blocks, own_values = maximum(1, values / 4);
  using Sums = float[own_values];

 public:
  JIT_DEVICE ScoreBlocksConsumer(const ScoreBlocksParams& params, unsigned smem, int consumer)
      : params_(params),
        first_row_(consumer * rows_per_warpgroup),
        q_(smem, Traits::layout.q),
        k_(smem, Traits::layout.k),
        order_(consumer) {}

  JIT_DEVICE void run() {
#pragma unroll 1
    for (int i = static_cast<int>(blockIdx.x); i < params_.items; i += static_cast<int>(gridDim.x)) {
      const Item item(params_, i);
      const Entry entry(params_.attention, item);
      if (!entry.is_there(item)) continue;
      const bool has_queries = entry.sees_some(item);
      if (has_queries) q_.consumer_wait();  // mutate: BlockQueriesReadEarly
#pragma unroll 1
      for (int tile = item.tile_begin; tile < item.tile_end; ++tile) {
        Sums sums;
        if (entry.sees(tile)) {
          score(item, entry, tile, sums);
        } else {
#pragma unroll
          for (int i = 0; i < own_values; ++i) sums[i] = negative_infinity();
        }
        write(item, entry, tile, sums);
      }
      if (has_queries) {
        q_.consumer_release();
        q_.advance();
      }
    }
  }

 private:
  JIT_DEVICE int first_query(const Item& item) const {
    return item.q_begin + first_row_ + warp_id() % 4 * MmaLayout::block_rows + MmaLayout::lane_row(lane_id());
  }

  JIT_DEVICE void score(const Item& item, const Entry& entry, int tile, Sums& sums) {
    k_.consumer_wait();  // mutate: BlockKeysReadEarly
    Scores scores;
    order_.wait();
    wgmma_fence();  // mutate: NoFenceBeforeBlockScores
    Config::template wgmma_qk<Q, K>(scores.registers[0],
                                    lower_word(Q::along_columns(q_.tile(), first_row_, 0)),
                                    lower_word(K::along_columns(k_.tile(), 0, 0)));
    wgmma_commit_group();
    order_.pass();
    const BlockContext& context = entry.context;
    const Mask mask(context);
    const int first_key = tile * score_blocks_keys, key_end = first_key + score_blocks_keys;
    const ScoreTile asked{item.q_begin, entry.q_end, first_key, minimum(key_end, context.seqlen_kv)};
    const bool is_partial = mask.classify(asked) != TileClass::full || key_end > context.seqlen_kv;
    wgmma_wait_group<0>();  // mutate: BlockScoresReadEarly
    wgmma_hold(scores.registers[0]);
    k_.consumer_release();  // mutate: BlockKeysNeverReleased
    k_.advance();
    const int query = first_query(item), key = first_key + MmaLayout::lane_column(lane_id());
    const float scale = params_.attention.softmax_scale;
    apply_score<QueriesByKeys>(scores, query, key, Score(context), scale, context);
    // mutate: MaskedKeysHaveScores
    if (is_partial) drop_masked<mask_query>(scores, {query, key}, mask, context);
    reduce(scores, sums);
    // A scale is positive.
    if constexpr (Score::is_identity) {
#pragma unroll
      for (int i = 0; i < own_values; ++i) sums[i] *= scale;
    }
  }

  static JIT_DEVICE void reduce(const Scores& scores, Sums& sums) {
    if constexpr (is_mean) {
      const auto add = [](float x, float y) { return x + y; };
      float of_lane[values], seen_by_lane[values];
      Sums seen;
#pragma unroll
      for (int i = 0; i < values; ++i) {
        of_lane[i] = seen_by_lane[i] = 0;
        for_each_of_block(scores, i / blocks, i % blocks, [&](float s) {
          const bool is_seen = s != negative_infinity();
          of_lane[i] += is_seen ? s : 0;
          seen_by_lane[i] += is_seen ? 1.0f : 0.0f;
        });
      }
      share_out(of_lane, sums, add);
      share_out(seen_by_lane, seen, add);
#pragma unroll
      for (int i = 0; i < own_values; ++i) sums[i] = seen[i] == 0 ? negative_infinity() : sums[i] / seen[i];
    } else {
      float of_lane[values];
#pragma unroll
      for (int i = 0; i < values; ++i) {
        of_lane[i] = negative_infinity();
        for_each_of_block(scores, i / blocks, i % blocks,
                          [&](float s) { of_lane[i] = max_nan(of_lane[i], s); });
      }
      share_out(of_lane, sums, [](float x, float y) { return max_nan(x, y); });
    }
  }
  template <class F>
  static JIT_DEVICE void for_each_of_block(const Scores& scores, int r, int b, const F& f) {
#pragma unroll
    for (int n = b * lane_blocks; n < (b + 1) * lane_blocks; ++n) {
#pragma unroll
      for (int i = 0; i < Scores::pair; ++i) f(scores.at(r, n, i));
    }
  }

  // Reduces the values of the four lanes of a row, of which lane i ends with those that are i mod 4. Each exchange halves
  // what a lane has.
  template <class F>
  static JIT_DEVICE void share_out(const float (&of_lane)[values], Sums& sums, const F& f) {
    const bool is_odd = (threadIdx.x & 1) != 0, is_upper = (threadIdx.x & 2) != 0;
    float half[values / 2];
#pragma unroll
    for (int i = 0; i < values / 2; ++i) {
      const float even = of_lane[2 * i], odd = of_lane[2 * i + 1];
      half[i] = f(is_odd ? odd : even, __shfl_xor_sync(full_warp, is_odd ? even : odd, 1));
    }
#pragma unroll
    for (int i = 0; i < own_values; ++i) {
      const float lower = half[2 * i % (values / 2)], upper = half[(2 * i + 1) % (values / 2)];
      sums[i] = f(is_upper ? upper : lower, __shfl_xor_sync(full_warp, is_upper ? lower : upper, 2));
    }
  }

  JIT_DEVICE void write(const Item& item, const Entry& entry, int tile, const Sums& sums) const {
    const TensorStrides& strides = params_.score_strides;
    const Sequence rows = entry.sequences.q(item.batch);
    const long long batch = Config::sequences_q == SequenceKind::varlen ? 0 : item.batch;
    float* const head = params_.scores + batch * strides.batch + item.head * strides.head;
    const int first = first_query(item), lane = lane_id() % 4;
#pragma unroll
    for (int i = 0; i < own_values; ++i) {
      const int value = 4 * i + lane, query = MmaLayout::row(first, 0, value / blocks);
      const int block = tile * blocks + value % blocks;
      const bool is_row = value < values && query < entry.context.seqlen_q;
      // mutate: BlocksBehindTheLastOne
      if (is_row && block < params_.blocks)
        head[(rows.begin + static_cast<long long>(query)) * strides.seq + block] = sums[i];
    }
  }

  const ScoreBlocksParams& params_;
  const int first_row_;
  typename Traits::QPipeline q_;
  typename Traits::KPipeline k_;
  // Products of one at a time: else both would multiply together, and then both reduce.
  const WarpgroupOrderBarrier<Traits> order_;
};

}  // namespace jit
