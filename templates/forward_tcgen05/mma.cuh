// The warp that issues all products. For each tile of keys and both query tiles in turn: O += P V of the tile before, then
// S = Q Kᵀ of this one, so that the softmax of one query tile runs under the products of the other. A pair of blocks, with
// one query tile each, has two places for S: S of the next tile of keys goes in front of O += P V of this one.
//
// S is written over P, and over the S that P was made of: the tensor cores compute products in the order in which one
// thread starts them, and P is there only when S was read.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "forward_tcgen05/traits.cuh"
#include "mainloop/pipelines.cuh"
#include "ptx/tcgen05.cuh"
#include "scheduling/work_pipeline.cuh"

namespace jit::forward_tcgen05 {

template <class Config>
class MmaWarp {
  using Traits = KernelTraits<Config>;
  using Element = typename Traits::Element;
  static constexpr int query_tiles = Traits::query_tiles, blocks = Traits::blocks.count;
  static constexpr bool is_pair = Traits::is_pair;

 public:
  JIT_DEVICE MmaWarp(const AttentionParams& params, unsigned smem, unsigned tmem)
      : tmem_(tmem),
        work_(params, smem),
        q_(QoPipelines<Traits>(smem).q),
        panels_(smem),
        infos_(smem),
        tiles_(of_tiles<Traits, TileBarriers<Traits>>(smem)) {}

  JIT_DEVICE void run() {
    while (is_work(work_.take())) {
      work_.release();
      const KeyTileInfo first = infos_.take();
      if (is_pair && cluster_rank() != 0) {
        follow(first.flags);
      } else if ((first.flags & key_info_none) != 0) {
        skip_queries();
      } else if constexpr (is_pair) {
        multiply_in_pair(first.flags);
      } else {
        multiply(first.flags);
      }
      q_.advance();
    }
    wait_for_releases();  // mutate: ReleasesOutliveTheBlock
  }

 private:
  // All products of a work tile, of which the first tile of keys has these flags.
  JIT_DEVICE void multiply(int flags) {
    panels_.k.consumer_wait();  // mutate: KeysMultipliedBeforeTheyAreThere
#pragma unroll
    for (int tile = 0; tile < query_tiles; ++tile) {
      q_pipeline_of<Traits>(q_, tile).consumer_wait();
      multiply_keys(tile);
    }
    release_keys();
    bool accumulates = false;
    while ((flags & key_info_end) == 0) {
      flags = infos_.take().flags;
      panels_.k.consumer_wait();
      panels_.v.consumer_wait();
#pragma unroll
      for (int tile = 0; tile < query_tiles; ++tile) {
        multiply_values(tile, accumulates);
        multiply_keys(tile);
      }
      release_keys();
      release_values();
      accumulates = true;
    }
    release_queries();
    panels_.v.consumer_wait();
#pragma unroll
    for (int tile = 0; tile < query_tiles; ++tile) {
      multiply_values(tile, accumulates);
      commit(tiles_[tile].o.full());  // mutate: OReadBeforeTheLastProducts
    }
    release_values();
  }

  // All products of a pair: scores of the next tile of keys in front of the values of this one.
  JIT_DEVICE void multiply_in_pair(int flags) {
    q_.consumer_wait_cluster();
    take_keys();
    bool accumulates = false;
    while ((flags & key_info_end) == 0) {
      flags = infos_.take().flags;
      take_keys();
      take_values(accumulates);
      accumulates = true;
    }
    release_queries();
    take_values(accumulates);
  }
  JIT_DEVICE void take_keys() {
    panels_.k.consumer_wait_cluster();  // mutate: KeysOfThePeerMissing
    multiply_keys(0);
    release_keys();
  }
  JIT_DEVICE void take_values(bool accumulates) {
    panels_.v.consumer_wait_cluster();
    multiply_values(0, accumulates);
    commit(tiles_[0].o.full());
    release_values();
  }
  // Goes through the tiles of a work tile as the leader does, without products.
  JIT_DEVICE void follow(int flags) {
    if ((flags & key_info_none) != 0) return;
    while (true) {
      panels_.k.advance();
      panels_.v.advance();
      if ((flags & key_info_end) != 0) return;
      flags = infos_.take().flags;
    }
  }

  // S = Q Kᵀ of a query tile, and says so when that and all before is done.
  JIT_DEVICE void multiply_keys(int tile) {
    using Q = typename Traits::QTile;
    using K = typename Traits::KTile;
    constexpr unsigned products = tcgen05_products<Element, Element>(blocks * query_rows, tile_kv, false);
    const unsigned long long q = tcgen05_descriptor(
                                 Q::along_columns(q_pipeline_of<Traits>(q_, tile).tile(), 0, 0)),
                             k = tcgen05_descriptor(K::along_columns(panels_.k.tile(), 0, 0));
    auto& scores = tiles_[tile].scores;
    if (elect_one()) {
#pragma unroll
      for (int step = 0; step < Traits::head_dim_steps; ++step) {
        tcgen05_mma<Element, blocks>(tmem_ + Traits::scores_column(tile + scores.stage()),
                                     q + Q::column_step(step), k + K::column_step(step), products, step > 0);
      }
      commit_by_lane(scores.full());
    }
    __syncwarp();
    scores.advance();
  }

  // O = P V, or O += P V, once P is there and O was rescaled.
  JIT_DEVICE void multiply_values(int tile, bool accumulates) {
    constexpr int early_steps = Traits::key_steps * early_quarters / p_quarters;
    const int place = tile + tiles_[tile].p.stage();
    wait_for<Traits>(tiles_[tile].p);  // mutate: ValuesMultipliedBeforePIsThere
    multiply_steps<0, early_steps>(tile, place, accumulates);
    wait_for<Traits>(tiles_[tile].p_end);  // mutate: LastValuesMultipliedBeforePIsThere
    multiply_steps<early_steps, Traits::key_steps>(tile, place, true);
  }
  // Some k-steps of it.
  template <int begin, int end>
  JIT_DEVICE void multiply_steps(int tile, int place, bool accumulates) {
    using V = typename Traits::VTile;
    constexpr unsigned products =
        tcgen05_products<typename Traits::Weight, Element>(blocks * query_rows, Traits::output_columns, true);
    const unsigned long long v = tcgen05_descriptor(V::along_rows(panels_.v.tile(), 0));
    if (elect_one()) {
#pragma unroll
      for (int step = begin; step < end; ++step) {
        tcgen05_mma<Element, blocks>(tmem_ + Traits::output_column(tile),
                                     tmem_ + Traits::p_column(place) + Traits::p_words(step * Traits::mma_k),
                                     v + V::row_step(step), products,
                                     accumulates || step > begin);  // mutate: OOfTheFirstTileIsRescaled
      }
    }
    __syncwarp();
  }

  // Tile stages are released when the products that were started so far are done.
  JIT_DEVICE void release_keys() {
    commit(panels_.k.empty());  // mutate: KeysNeverReleased
    panels_.k.advance();
  }
  JIT_DEVICE void release_values() {
    commit(panels_.v.empty());
    panels_.v.advance();
  }
  JIT_DEVICE void release_queries() {
#pragma unroll
    for (int tile = 0; tile < query_tiles; ++tile) commit(q_pipeline_of<Traits>(q_, tile).empty());
  }
  // The tensor cores arrive at barriers of the block, which must not end before.
  JIT_DEVICE void wait_for_releases() {
    panels_.k.producer_tail();
    panels_.v.producer_tail();
#pragma unroll
    for (int tile = 0; tile < query_tiles; ++tile) q_pipeline_of<Traits>(q_, tile).producer_tail();
  }
  // Queries that see no key.
  JIT_DEVICE void skip_queries() {
#pragma unroll
    for (int tile = 0; tile < query_tiles; ++tile) {
      q_pipeline_of<Traits>(q_, tile).consumer_wait();
      release_both(q_pipeline_of<Traits>(q_, tile));
    }
  }
  // Releases a stage in each block.
  template <class Pipeline>
  static JIT_DEVICE void release_both(const Pipeline& pipeline) {
    if constexpr (is_pair) pipeline.consumer_release_to(1);  // mutate: PeerKeepsItsQueries
    pipeline.consumer_release();
  }
  static JIT_DEVICE void commit(unsigned barrier) {
    if (elect_one()) commit_by_lane(barrier);
    __syncwarp();
  }
  static JIT_DEVICE void commit_by_lane(unsigned barrier) {
    if constexpr (is_pair) {
      tcgen05_commit_pair(barrier);
    } else {
      tcgen05_commit(barrier);  // mutate: KeysReleasedAtOnce
    }
  }

  const unsigned tmem_;
  WorkPipeline<Traits> work_;
  decltype(QoPipelines<Traits>::q) q_;
  PanelPipelines<Traits> panels_;
  KeyInfoPipeline<Traits> infos_;
  OfTiles<Traits, TileBarriers<Traits>> tiles_;
};

}  // namespace jit::forward_tcgen05
