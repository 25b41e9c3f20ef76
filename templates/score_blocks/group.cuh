// The epilogue of probabilities, summed over the heads that share keys (NSA): the tile of keys stays while the tiles of queries of
// a group's heads stream by, so that what leaves the registers is a group's, not a head's.
#pragma once

#include "ptx/math.cuh"
#include "ptx/warpgroup.cuh"
#include "score_blocks/work.cuh"
#include "score_mainloop/mainloop.cuh"
#include "score_mainloop/roles.cuh"

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
  typename Traits::QPipeline q(smem, Traits::layout.q);
  typename Traits::KPipeline k(smem, Traits::layout.k);
  for_each_item(params.items, [&](int i) {
    const ScoreBlocksItem<Config> item(params, i);
    const ScoreGroup<Config> group(params.attention, item);
    const ScoreBlocksEntry<Config>& entry = group.entry;
    if (!entry.is_there(item)) return;
#pragma unroll 1
    for (int tile = group.tile_begin; tile < item.tile_end; ++tile) {
      if (!entry.sees(tile)) continue;
      load_stage<typename Traits::K>(k, params.k,
                                     [&](int) { return entry.key_place(item, item.head, tile); });
#pragma unroll 1
      for (int g = 0; g < Config::gqa_ratio; ++g) {
        load_stage<typename Traits::Q>(q, params.q,
                                       [&](int) { return entry.query_place(item, group.first_head + g); });
      }
    }
  });
}

template <class Traits>
class ScoreGroupConsumer {
  using Config = typename Traits::Config;
  using Scores = typename Traits::Scores;
  using Item = ScoreBlocksItem<Config>;
  using Group = ScoreGroup<Config>;
  static constexpr int size = Config::block_size;

 public:
  JIT_DEVICE ScoreGroupConsumer(const ScoreBlocksParams& params, unsigned smem, int consumer)
      : params_(params),
        exponent_((Config::Score::is_identity ? params.attention.softmax_scale : 1.0f) * log2_e),
        mainloop_(smem, consumer) {}

  JIT_DEVICE void run() {
    for_each_item(params_.items, [&](int i) {
      const Item item(params_, i);
      const Group group(params_.attention, item);
      if (!group.entry.is_there(item)) return;
      float left[Scores::rows] = {};
#pragma unroll 1
      for (int tile = group.tile_begin; tile < item.tile_end; ++tile) {
        Scores sums;
        sums.clear();
        if (group.entry.sees(tile)) add_heads(item, group, tile, sums);
        spread(sums, left);
        if (tile >= item.tile_begin) write(item, group, tile, sums);
      }
    });
  }

 private:
  JIT_DEVICE void add_heads(const Item& item, const Group& group, int tile, Scores& sums) {
    mainloop_.wait_for_resident();
#pragma unroll 1
    for (int g = 0; g < Config::gqa_ratio; ++g) {
      mainloop_.wait_for_streamed();
      Scores scores;
      mainloop_.start(scores);
      add(item, group.entry, group.first_head + g, tile, scores, sums);
    }
    mainloop_.release_resident();
  }

  // Adds the probabilities of a head, whose product is under way.
  JIT_DEVICE void add(const Item& item, const ScoreBlocksEntry<Config>& entry, int head, int tile,
                      Scores& scores, Scores& sums) {
    const BlockContext context = entry.sequences.context(item.batch, head);
    const int query = item.first_query(mainloop_.first_row());
    const auto lse_rows = entry.sequences.lse_rows(item.batch, head);
    float lse[Scores::rows];
    Scores::for_each_row(query, [&](int r, int row) {
      lse[r] = lse_exponent(row < context.seqlen_q ? *lse_rows.at(row) : negative_infinity());
    });
    const ScoreBlocksTile<Traits> functors(entry, context, item.q_begin, query, tile);
    mainloop_.finish(scores);
    functors.apply(scores, params_.attention.softmax_scale);
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
  JIT_DEVICE void write(const Item& item, const Group& group, int tile, const Scores& sums) const {
    const DenseRows<float> rows = group.entry.rows(params_, item);
    const int lane = lane_id() % 4, first = tile * Traits::blocks;
    Scores::for_each_row(item.first_query(mainloop_.first_row()), [&](int r, int query) {
      float* const row = rows.at(query);
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
  ScoreMainloop<Traits> mainloop_;
};

}  // namespace jit
