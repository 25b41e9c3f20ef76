// The pipeline from the score warpgroup to the output warpgroups. A stage has P of a tile of keys in shared memory, as
// wgmma reads it, or closes a work tile. With either come factors of rows: what O is multiplied by first.
//
// Warps of all three warpgroups with the same index have the same 16 rows: each warp looks at the flags of its own.
#pragma once

#include "base/prelude.cuh"
#include "forward_wide_wgmma/traits.cuh"
#include "pipeline/pipeline.cuh"
#include "ptx/bulk_copy.cuh"
#include "ptx/ldmatrix.cuh"
#include "tiles/shared_words.cuh"

namespace jit::forward_wide_wgmma {

enum PFlags : int {
  p_rescales = 1,  ///< O is multiplied by the row factors first
  p_ends = 2,      ///< there is no P: the row factors are the last ones of the work tile
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

  /// Waits for room. By the score warpgroup, as is what follows.
  JIT_DEVICE void acquire() const { pipeline_.producer_acquire(); }
  /// Writes the A fragment of one step of P.
  JIT_DEVICE void write_step(const unsigned (&a)[4], int step) const {
    const int lane = lane_id();
    const int row = own_warp() * 16 + lane % 16;
    stmatrix_x4(PTile::chunk_address(pipeline_.tile(), row, 2 * step + lane / 16), a);
  }
  /// Hands over what was written, with the factors of the rows where `flags` say that they count.
  JIT_DEVICE void commit(int flags, const RowFactors& factors) {
    const int first_row = own_warp() * 16 + Layout::lane_row(lane_id());
    const unsigned flags_at = flags_place();
    if (flags != 0 && Layout::speaks_for_rows(lane_id())) {
      Scores::for_each_row(first_row, [&](int r, int row) {
        store_shared(row_factor(row), __float_as_int(factors[r]));  // mutate: RowFactorsOfOtherRows
      });
    }
    if (lane_id() == 0) store_shared(flags_at, flags);
    fence_proxy_async_shared();  // mutate: PWithoutProxyFence
    pipeline_.producer_commit();
    pipeline_.advance();
  }

  /// Waits for the next stage, and returns the flags of the warp's rows. By the output warpgroups, as is what follows.
  JIT_DEVICE int take() const {
    pipeline_.consumer_wait();  // mutate: PTakenBeforeItIsThere
    return load_shared_by_warp(flags_place());
  }
  JIT_DEVICE void read_factors(RowFactors& factors) const {
    Scores::for_each_row(own_warp() * 16 + Layout::lane_row(lane_id()),
                         [&](int r, int row) { factors[r] = __int_as_float(load_shared(row_factor(row))); });
  }
  /// Shared address of P.
  JIT_DEVICE unsigned tile() const { return pipeline_.tile(); }
  JIT_DEVICE void release() {
    pipeline_.consumer_release();
    pipeline_.advance();
  }

 private:
  static JIT_DEVICE int own_warp() { return uniform(reread_thread_index() % warpgroup_size / warp_size); }
  JIT_DEVICE unsigned flags_place() const {
    return smem_ + Traits::layout.p_flags + (pipeline_.stage() * Traits::warps + own_warp()) * 4;
  }
  JIT_DEVICE unsigned row_factor(int row) const {
    return smem_ + Traits::layout.row_factors + (pipeline_.stage() * rows_per_warpgroup + row) * 4;
  }

  const unsigned smem_;
  Pipeline<stages_p, Traits::PTile::bytes> pipeline_;
};

}  // namespace jit::forward_wide_wgmma
