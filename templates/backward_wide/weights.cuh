// The pipeline from the score warpgroup to those that sum a gradient: tiles of weights, P or dS, in shared memory. A tile is
// handed over when the score products of the next one are complete: so products with weights overlap with the arithmetic of
// scores, and score products have the tensor cores for themselves.
#pragma once

#include "backward_wide/traits.cuh"
#include "base/prelude.cuh"
#include "pipeline/pipeline.cuh"
#include "ptx/bulk_copy.cuh"
#include "ptx/ldmatrix.cuh"
#include "steps/no_dropout.cuh"
#include "tiles/shared_words.cuh"

namespace jit::backward_wide {

/// One side's place in the pipeline.
template <class Traits>
class WeightPipeline {
  using Tile = typename Traits::Weights;

 public:
  JIT_DEVICE explicit WeightPipeline(unsigned smem) : smem_(smem), pipeline_(smem, Traits::layout.weights) {}

  /// Writes the warp's rows of a tile, of which `kept` says what is dropped. By the score warpgroup, as what follows.
  template <class Product, class Kept = NoDropout>
  JIT_DEVICE void write(const Product& product, const Kept& kept = {}) {
    const int lane = lane_id();
    const int row = reread_thread_index() % warpgroup_size / warp_size * 16 + lane % 16;
    pipeline_.producer_acquire();  // mutate: WeightsOverWeightsThatAreMultiplied
#pragma unroll
    for (int step = 0; step < Traits::weight_steps; ++step) {
      unsigned a[4];
      product.template pack_step<typename Traits::Element>(a, 0, step);
      drop_step(kept, a, 0, step);
      stmatrix_x4(Tile::chunk_address(pipeline_.tile(), row, 2 * step + lane / 16), a);
    }
    is_written_ = true;
  }
  /// Hands over the tile that was written, if there is one.
  JIT_DEVICE void hand_over() {
    if (is_written_) commit(1);
  }
  /// The last one, and says that there are no more.
  JIT_DEVICE void end() {
    hand_over();
    pipeline_.producer_acquire();
    commit(0);
  }

  /// Waits for the next tile. Returns whether there is one. By warpgroups that sum, as what follows.
  JIT_DEVICE bool take() const {
    pipeline_.consumer_wait();  // mutate: WeightsTakenBeforeTheyAreThere
    return load_shared_by_warp(has_more()) != 0;
  }
  JIT_DEVICE unsigned tile() const { return pipeline_.tile(); }
  JIT_DEVICE void release() {
    pipeline_.consumer_release();
    pipeline_.advance();
  }

 private:
  JIT_DEVICE unsigned has_more() const { return smem_ + Traits::layout.has_more + pipeline_.stage() * 4; }
  JIT_DEVICE void commit(int more) {
    const unsigned place = has_more();
    if (threadIdx.x % warpgroup_size == 0) store_shared(place, more);
    fence_proxy_async_shared();  // mutate: WeightsWithoutProxyFence
    pipeline_.producer_commit();
    pipeline_.advance();
  }

  const unsigned smem_;
  Pipeline<stages_weights, Tile::bytes> pipeline_;
  bool is_written_ = false;
};

}  // namespace jit::backward_wide
