// The mainloop of passes that reduce scores. A producer warp streams tiles of queries or keys past one that stays, and consumer
// warpgroups multiply both by wgmma. Each pass has an order of tiles of its own, and an epilogue that reduces a tile's scores
// over rows or columns while they lie in registers.
#pragma once

#include "base/prelude.cuh"
#include "pipeline/pipeline.cuh"
#include "pipeline/warpgroup_order_barrier.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/warpgroup.cuh"
#include "ptx/wgmma.cuh"
#include "tiles/box_copy.cuh"
#include "tiles/shared_words.cuh"

namespace jit {

struct NothingBeside {
  JIT_DEVICE void operator()() const {}
};

/// Who starts the copies of a stage: one lane, or as many as there are boxes, each of which looks up the place of its own.
enum class BoxesBy { one_lane, lanes };

/// Loads the next stage, `rows` rows in one or more tiles, by boxes of some rows. `place(row)` says where the box lies whose first
/// row in the stage is `row`. `beside()` starts what else the stage holds. By one warp.
template <class Tile, int rows = Tile::rows, int box_rows = Tile::rows, BoxesBy by = BoxesBy::one_lane,
          class Pipeline, class Place, class Beside = NothingBeside>
JIT_DEVICE void load_stage(Pipeline& pipeline, const TensorMap& map, const Place& place,
                           const Beside& beside = {}) {
  constexpr int boxes = rows / box_rows;
  pipeline.producer_acquire();  // mutate: ScoreTilesLoadedEarly
  beside();
  const auto load_box = [&](int box) {
    const int row = box * box_rows;
    load_tile<Tile>(pipeline.tile() + static_cast<unsigned>(row / Tile::rows * Tile::bytes +
                                                            row % Tile::rows * Tile::row_bytes),
                    map, pipeline.full(), place(row));
  };
  const int lane = lane_id();
  if (lane == 0) {
    mbarrier_arrive_expect_tx(pipeline.full(), rows / Tile::rows * Tile::bytes);
    if constexpr (by == BoxesBy::one_lane) {
#pragma unroll 1
      for (int box = 0; box < boxes; ++box) load_box(box);
    }
  }
  __syncwarp();
  if constexpr (by == BoxesBy::lanes) {
    static_assert(boxes <= warp_size, "a lane has a box");
    if (lane < boxes) load_box(lane);
    __syncwarp();
  }
  pipeline.advance();
}

/// The side of a consumer. Traits names the tiles, the pipelines q and k, which of both is the products' rows, which stays,
/// whether consumers share out rows or columns, and how many products are under way.
template <class Traits>
class ScoreMainloop {
  using Config = typename Traits::Config;
  using Scores = typename Traits::Scores;
  using Q = typename Traits::Q;
  using K = typename Traits::K;
  static constexpr bool is_alone = Traits::products == 1;

 public:
  JIT_DEVICE ScoreMainloop(unsigned smem, int consumer)
      : q(smem, Traits::layout.q), k(smem, Traits::layout.k), consumer_(consumer), order_(consumer) {}

  /// The row of the stage's rows with which those of the consumer begin.
  JIT_DEVICE int first_row() const { return Traits::shares_columns ? 0 : consumer_ * rows_per_warpgroup; }

  JIT_DEVICE void wait_for_resident() {
    resident().consumer_wait();  // mutate: ResidentTileReadEarly
  }
  JIT_DEVICE void release_resident() {
    resident().consumer_release();  // mutate: ResidentTileNeverReleased
    resident().advance();
  }
  JIT_DEVICE void wait_for_streamed() {
    streamed().consumer_wait();  // mutate: StreamedTileReadEarly
  }

  /// Starts the product with the streamed tile.
  JIT_DEVICE void start(Scores& scores) {
    order_.wait();
    wgmma_fence();  // mutate: NoFenceBeforeScores
    if constexpr (Traits::keys_are_rows) {
      Config::template wgmma_scores<K, Q>(scores.registers[0], rows_of<K>(k.tile()), columns_of<Q>(q.tile()));
    } else {
      Config::template wgmma_scores<Q, K>(scores.registers[0], rows_of<Q>(q.tile()), columns_of<K>(k.tile()));
    }
    wgmma_commit_group();
    order_.pass();
    if constexpr (!is_alone) streamed().advance();
  }

  /// Waits for the product that was started before the last `pending` ones, and releases its streamed tile.
  template <int pending = 0>
  JIT_DEVICE void finish(Scores& scores) {
    wgmma_wait_group<pending>();  // mutate: ScoresReadEarly
    wgmma_hold(scores.registers[0]);
    if constexpr (is_alone) {
      streamed().consumer_release();  // mutate: StreamedTileNeverReleased
      streamed().advance();
    } else {
      streamed().consumer_release_before(pending + 1);  // mutate: EarlierTileNeverReleased
    }
  }

  typename Traits::QPipeline q;
  typename Traits::KPipeline k;

 private:
  template <class A, class B>
  static JIT_DEVICE auto& chosen(A& if_keys_stay, B& otherwise) {
    if constexpr (Traits::keys_stay) return if_keys_stay;
    if constexpr (!Traits::keys_stay) return otherwise;
  }
  JIT_DEVICE auto& resident() { return chosen(k, q); }
  JIT_DEVICE auto& streamed() { return chosen(q, k); }
  // Descriptors must be uniform, which the compiler sees of one product under way by itself.
  static JIT_DEVICE unsigned known_uniform(unsigned tile) { return is_alone ? tile : uniform(tile); }
  template <class Tile>
  JIT_DEVICE unsigned rows_of(unsigned tile) const {
    return lower_word(Tile::along_columns(known_uniform(tile), first_row(), 0));
  }
  template <class Tile>
  JIT_DEVICE unsigned columns_of(unsigned tile) const {
    const unsigned own = tile + static_cast<unsigned>(Traits::shares_columns ? consumer_ * Tile::bytes : 0);
    return lower_word(Tile::along_columns(known_uniform(own), 0, 0));
  }

  const int consumer_;
  // Products of one consumer at a time: else all would multiply together, and then all reduce.
  const WarpgroupOrderBarrier<Traits> order_;
};

}  // namespace jit
