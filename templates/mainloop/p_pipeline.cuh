// The pipeline from a warpgroup that computes scores to those that multiply P with values. A stage holds P of a tile of
// keys in shared memory, as wgmma reads it, or closes a work tile. Either has a factor for each row, by which O is multiplied
// first.
//
// Warps of all these warpgroups with the same index have the same 16 rows: each warp looks at the flags of its own. A
// Traits is that of a kernel family: Scores, PTile, stages_p, the warps of a warpgroup, and the layout of shared memory.
#pragma once

#include "base/prelude.cuh"
#include "pipeline/pipeline.cuh"
#include "ptx/bulk_copy.cuh"
#include "ptx/ldmatrix.cuh"
#include "ptx/warpgroup.cuh"
#include "steps/no_dropout.cuh"
#include "tiles/panel_tile.cuh"
#include "tiles/shared_words.cuh"

namespace jit {

enum PFlags : int {
  p_rescales = 1,  ///< O is multiplied by the row factors first
  p_ends = 2,      ///< there is no P: what comes of rows is the last of the work tile
};

/// One side's place in the pipeline.
template <class Traits>
class PPipeline {
  using Scores = typename Traits::Scores;
  using Layout = typename Scores::Layout;
  using PTile = typename Traits::PTile;
  using RowFactors = float[Scores::rows];

 public:
  JIT_DEVICE explicit PPipeline(unsigned smem) : smem_(smem), pipeline_(smem, Traits::layout.p) {}

  /// P in registers: words of the A operand, step by step.
  using Words = unsigned[Traits::key_steps][4];

  /// Waits for room. By the score warpgroup, as is what follows.
  JIT_DEVICE void acquire() const { pipeline_.producer_acquire(); }
  /// Writes P of exponentials, of which `kept` keeps some.
  template <class Kept = NoDropout>
  JIT_DEVICE void write(const Scores& scores, const Kept& kept = {}) const {
    const int lane = lane_id();
    const int row = own_warp() * 16 + lane % 16;
#pragma unroll
    for (int step = 0; step < Traits::key_steps; ++step) {
      unsigned a[4];
      scores.template pack_step<typename Traits::Element>(a, 0, step);
      drop_step(kept, a, 0, step);
      stmatrix_x4(PTile::chunk_address(pipeline_.tile(), row, 2 * step + lane / 16), a);
    }
  }
  /// Writes P that was packed before.
  JIT_DEVICE void write(const Words& words) const {
    const int lane = lane_id();
    const int row = own_warp() * 16 + lane % 16;
#pragma unroll
    for (int step = 0; step < Traits::key_steps; ++step) {
      // mutate: StepsOfPInOnePlace
      stmatrix_x4(PTile::chunk_address(pipeline_.tile(), row, 2 * step + lane / 16), words[step]);
    }
  }
  /// Writes a number of each row where P would lie.
  JIT_DEVICE void write_rows(const RowFactors& numbers) const {
    store_rows([&](int row) { return row_number(row); }, numbers);
  }
  /// Writes flags, and the factors of the rows where these say that they count.
  JIT_DEVICE void write_flags(int flags, const RowFactors& factors) const {
    if (flags != 0) store_rows([&](int row) { return row_factor(row); }, factors);
    const unsigned flags_at = flags_place();
    if (lane_id() == 0) store_shared(flags_at, flags);
  }
  /// Hands over what was written.
  JIT_DEVICE void commit() {
    fence();
    commit_fenced();
  }
  /// Lets wgmma read what was written, once it is handed over.
  JIT_DEVICE void fence() const {
    fence_proxy_async_shared();  // mutate: PWithoutProxyFence
  }
  JIT_DEVICE void commit_fenced() {
    pipeline_.producer_commit();
    pipeline_.advance();
  }

  /// Waits for the next stage, and returns the flags of the warp's rows. By the output warpgroups, as is what follows.
  JIT_DEVICE int take() const {
    pipeline_.consumer_wait();  // mutate: PTakenBeforeItIsThere
    return load_shared_by_warp(flags_place());
  }
  JIT_DEVICE void read_factors(RowFactors& factors) const {
    for_each_own_row([&](int r, int row) {
      factors[r] = __int_as_float(load_shared(row_factor(row)));  // mutate: RowFactorsOfOtherRows
    });
  }
  JIT_DEVICE void read_rows(RowFactors& numbers) const {
    for_each_own_row([&](int r, int row) {
      numbers[r] = __int_as_float(load_shared(row_number(row)));  // mutate: NumbersOfOtherRows
    });
  }
  /// Shared address of P.
  JIT_DEVICE unsigned tile() const { return pipeline_.tile(); }
  JIT_DEVICE void release() {
    pipeline_.consumer_release();
    pipeline_.advance();
  }

 private:
  static JIT_DEVICE int own_warp() { return uniform(reread_thread_index() % warpgroup_size / warp_size); }
  template <class F>
  static JIT_DEVICE void for_each_own_row(F f) {
    Scores::for_each_row(own_warp() * 16 + Layout::lane_row(lane_id()), f);
  }
  // Stores numbers of the rows at the addresses that `place` gives, by the lanes that speak for them.
  template <class Place>
  static JIT_DEVICE void store_rows(Place place, const RowFactors& numbers) {
    for_each_own_row([&](int r, int row) {
      if (Layout::is_row_leader(lane_id())) store_shared(place(row), __float_as_int(numbers[r]));
    });
  }
  JIT_DEVICE unsigned flags_place() const {
    return smem_ + Traits::layout.p_flags + (pipeline_.stage() * Traits::warps + own_warp()) * 4;
  }
  JIT_DEVICE unsigned row_factor(int row) const {
    return smem_ + Traits::layout.row_factors + (pipeline_.stage() * rows_per_warpgroup + row) * 4;
  }
  JIT_DEVICE unsigned row_number(int row) const { return pipeline_.tile() + row * 4; }

  const unsigned smem_;
  Pipeline<Traits::stages_p, PTile::bytes> pipeline_;
};

}  // namespace jit
