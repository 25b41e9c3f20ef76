// P of a tile of keys, and the states of rows behind it, from the warpgroup that has computed them to the other one.
#pragma once

#include "base/prelude.cuh"
#include "pipeline/pipeline.cuh"
#include "ptx/bulk_copy.cuh"
#include "ptx/ldmatrix.cuh"
#include "ptx/warpgroup.cuh"
#include "steps/softmax.cuh"
#include "tiles/shared_words.cuh"

namespace jit::forward_mla_wgmma {

/// One side of the exchange, a pipeline with one stage in which either warpgroup is a producer of its own tiles. A thread's
/// state goes to the thread of the other one that has the same rows. P stays until the tile is released.
template <class Traits>
class PExchange {
  using PTile = typename Traits::PTile;
  static constexpr int rows = Traits::Scores::rows;

 public:
  JIT_DEVICE explicit PExchange(unsigned smem)
      : states_(smem + Traits::layout.states), pipeline_(smem, Traits::layout.p) {}

  /// P in registers: words of the A operand, step by step.
  using Words = unsigned[Traits::key_steps][4];

  /// Gives P, which is written to `tile`, states, and whether the warp's maxima have moved.
  template <class State>
  JIT_DEVICE void give(const Words& words, unsigned tile, const State& state, bool moves) {
    const int lane = lane_id();
    const int row = own_thread() / warp_size * 16 + lane % 16;
#pragma unroll
    for (int step = 0; step < Traits::key_steps; ++step)
      // mutate: StepsOfGivenPInOnePlace
      stmatrix_x4(PTile::chunk_address(tile, row, 2 * step + lane / 16), words[step]);
    static_assert(rows == 2, "a thread's state is 16 bytes");
    pipeline_.producer_acquire();
    const float numbers[4] = {state.row_max[0], state.row_max[1], state.row_sum[0], state.row_sum[1]};
    store_shared(own_state(), numbers);
    if (lane == 0) store_shared(flags() + own_thread() / warp_size * 4, static_cast<int>(moves));
    fence_proxy_async_shared();  // mutate: GivenPWithoutProxyFence
    pipeline_.producer_commit();
    pipeline_.advance();
  }
  /// Waits for P and states. Returns whether maxima of some warp have moved, for all to know alike; then O is multiplied by
  /// `correction`.
  template <class State>
  JIT_DEVICE bool take(State& state, float scale_log2, float (&correction)[rows]) {
    pipeline_.consumer_wait();  // mutate: PTakenBeforeItIsGiven
    float numbers[4];
    load_shared(numbers, own_state());
    int moves[4];
    load_shared(moves, flags());
    pipeline_.consumer_release();
    pipeline_.advance();
#pragma unroll
    for (int r = 0; r < rows; ++r) {
      correction[r] = ex2((state.row_max[r] - finite_or_zero(numbers[r])) * scale_log2);
      state.row_max[r] = numbers[r];
      state.row_sum[r] = numbers[rows + r];  // mutate: SumsOfOwnTilesAlone
    }
    return uniform(moves[0] | moves[1] | moves[2] | moves[3]) != 0;
  }

 private:
  static JIT_DEVICE int own_thread() { return static_cast<int>(reread_thread_index()) % warpgroup_size; }
  JIT_DEVICE unsigned own_state() const { return states_ + own_thread() * 16; }
  JIT_DEVICE unsigned flags() const { return states_ + warpgroup_size * 16; }

  const unsigned states_;
  Pipeline<1, 0> pipeline_;
};

}  // namespace jit::forward_mla_wgmma
