// Scores of blocks of keys: the largest or the mean of the scores that a query has with the keys of a block, or the sum of their
// probabilities. For sm_90a, by TMA and wgmma. Queries are the rows of the products, so that a block's scores lie in four lanes.
#pragma once

#include "pipeline/dependent_launch.cuh"
#include "problem/gradients.cuh"
#include "problem/masks.cuh"
#include "problem/scores.cuh"
#include "ptx/warpgroup.cuh"
#include "score_blocks/consumer.cuh"
#include "score_blocks/group.cuh"
#include "tiles/box_copy.cuh"
#include "tiles/tile_copy.cuh"

namespace jit {

/// By one warp.
template <class Traits>
JIT_DEVICE void load_blocks(const ScoreBlocksParams& params, unsigned smem) {
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
    const ScoreBlocksEntry<Config> entry(params.attention, item);
    if (!entry.is_there(item) || !entry.sees_some(item)) continue;
    q.producer_acquire();  // mutate: BlockQueriesLoadedEarly
    if (lane_id() == 0) {
      mbarrier_arrive_expect_tx(q.full(), Q::bytes);
      load_tile<Q>(
          q.tile(), params.q, q.full(),
          score_row_place<is_varlen_q>(entry.sequences.q(item.batch), item.batch, item.head, item.q_begin));
    }
    __syncwarp();
    q.advance();
    const int kv_head = entry.sequences.kv_head(item.head);
#pragma unroll 1
    for (int tile = item.tile_begin; tile < item.tile_end; ++tile) {
      if (!entry.sees(tile)) continue;
      k.producer_acquire();  // mutate: BlockKeysLoadedEarly
      if (lane_id() == 0) {
        mbarrier_arrive_expect_tx(k.full(), K::bytes);
        load_tile<K>(k.tile(), params.k, k.full(),
                     score_row_place<is_varlen_kv>(entry.sequences.kv(item.batch), item.batch, kv_head,
                                                   tile * score_blocks_keys));
      }
      __syncwarp();
      k.advance();
    }
  }
}

template <class Config>
JIT_DEVICE void score_blocks(const ScoreBlocksParams& params) {
  using Traits = ScoreBlocksTraits<Config>;
  extern __shared__ __align__(1024) unsigned char memory[];
  const unsigned smem = smem_address(memory);
  if (threadIdx.x == 0) {
    constexpr int warps = score_blocks_consumers * warpgroup_size / warp_size;
    init_pipeline(smem, Traits::layout.q, 1, warps);
    init_pipeline(smem, Traits::layout.k, 1, warps);
    fence_mbarrier_init();  // mutate: BlocksNoFenceBehindInit
  }
  wait_for_grids_before();  // mutate: ScoresOfBlocksThatAreNotThere
  __syncthreads();          // mutate: BlocksNoBarrierBehindInit
  if (threadIdx.x < warpgroup_size) {
    setmaxnreg_dec<40>();
    if (warp_id() == 0) {
      if constexpr (Config::sums_heads)
        load_groups<Traits>(params, smem);
      else
        load_blocks<Traits>(params, smem);
    }
  } else {
    setmaxnreg_inc<232>();
    if constexpr (Config::sums_heads)
      ScoreGroupConsumer<Traits>(params, smem, warp_id() / 4 - 1).run();
    else
      ScoreBlocksConsumer<Traits>(params, smem, warp_id() / 4 - 1).run();
  }
  let_next_grid_start();
}

}  // namespace jit
