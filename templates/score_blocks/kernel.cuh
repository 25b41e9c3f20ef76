// Scores of blocks of keys: the largest or the mean of the scores that a query has with the keys of a block, or the sum of their
// probabilities. For sm_90a, by TMA and wgmma. Queries are the rows of the products, so that a block's scores lie in four lanes.
#pragma once

#include "score_blocks/consumer.cuh"
#include "score_blocks/group.cuh"
#include "score_mainloop/mainloop.cuh"
#include "score_mainloop/roles.cuh"

namespace jit {

/// By one warp.
template <class Traits>
JIT_DEVICE void load_blocks(const ScoreBlocksParams& params, unsigned smem) {
  using Config = typename Traits::Config;
  typename Traits::QPipeline q(smem, Traits::layout.q);
  typename Traits::KPipeline k(smem, Traits::layout.k);
  for_each_item(params.items, [&](int i) {
    const ScoreBlocksItem<Config> item(params, i);
    const ScoreBlocksEntry<Config> entry(params.attention, item);
    if (!entry.is_there(item) || !entry.sees_some(item)) return;
    load_stage<typename Traits::Q>(q, params.q, [&](int) { return entry.query_place(item, item.head); });
    const int kv_head = entry.sequences.kv_head(item.head);
#pragma unroll 1
    for (int tile = item.tile_begin; tile < item.tile_end; ++tile) {
      if (!entry.sees(tile)) continue;
      load_stage<typename Traits::K>(k, params.k, [&](int) { return entry.key_place(item, kv_head, tile); });
    }
  });
}

template <class Config>
JIT_DEVICE void score_blocks(const ScoreBlocksParams& params) {
  using Traits = ScoreBlocksTraits<Config>;
  const unsigned smem = begin_score_pass<Traits>();
  using Consumer =
      typename ChosenType<Config::sums_heads, ScoreGroupConsumer<Traits>, ScoreBlocksConsumer<Traits>>::type;
  run_score_pass<Traits>(
      [&] {
        if constexpr (Config::sums_heads)
          load_groups<Traits>(params, smem);
        else
          load_blocks<Traits>(params, smem);
      },
      [&](int consumer) { Consumer(params, smem, consumer).run(); });
}

}  // namespace jit
