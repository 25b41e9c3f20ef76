// The epilogue of largest and mean scores: scores of 64 queries and a tile of keys are reduced over blocks of keys, within a lane,
// and then over the four that share a row.
#pragma once

#include "ptx/math.cuh"
#include "ptx/warpgroup.cuh"
#include "score_blocks/work.cuh"
#include "score_mainloop/mainloop.cuh"
#include "score_mainloop/roles.cuh"

namespace jit {

template <class Traits>
class ScoreBlocksConsumer {
  using Config = typename Traits::Config;
  using Scores = typename Traits::Scores;
  using Item = ScoreBlocksItem<Config>;
  using Entry = ScoreBlocksEntry<Config>;
  static constexpr int blocks = Traits::blocks, lane_blocks = Scores::column_blocks / blocks;
  static constexpr bool is_mean = Config::is_mean;
  // A lane ends with each fourth of the values of its rows, block after block, or with one of two.
  static constexpr int values = Scores::rows * blocks, own_values = maximum(1, values / 4);
  using Sums = float[own_values];

 public:
  JIT_DEVICE ScoreBlocksConsumer(const ScoreBlocksParams& params, unsigned smem, int consumer)
      : params_(params), mainloop_(smem, consumer) {}

  JIT_DEVICE void run() {
    for_each_item(params_.items, [&](int i) {
      const Item item(params_, i);
      const Entry entry(params_.attention, item);
      if (!entry.is_there(item)) return;
      const bool has_queries = entry.sees_some(item);
      if (has_queries) mainloop_.wait_for_resident();
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
      if (has_queries) mainloop_.release_resident();
    });
  }

 private:
  JIT_DEVICE void score(const Item& item, const Entry& entry, int tile, Sums& sums) {
    mainloop_.wait_for_streamed();
    Scores scores;
    mainloop_.start(scores);
    const ScoreBlocksTile<Traits> functors(entry, entry.context, item.q_begin,
                                           item.first_query(mainloop_.first_row()), tile);
    mainloop_.finish(scores);
    const float scale = params_.attention.softmax_scale;
    functors.apply(scores, scale);
    reduce(scores, sums);
    // A scale is positive.
    if constexpr (Config::Score::is_identity) {
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
    const DenseRows<float> rows = entry.rows(params_, item);
    const int first = item.first_query(mainloop_.first_row()), lane = lane_id() % 4;
#pragma unroll
    for (int i = 0; i < own_values; ++i) {
      const int value = 4 * i + lane, query = MmaLayout::row(first, 0, value / blocks);
      const int block = tile * blocks + value % blocks;
      const bool is_row = value < values && query < entry.context.seqlen_q;
      // mutate: BlocksBehindTheLastOne
      if (is_row && block < params_.blocks) rows.at(query)[block] = sums[i];
    }
  }

  const ScoreBlocksParams& params_;
  ScoreMainloop<Traits> mainloop_;
};

}  // namespace jit
