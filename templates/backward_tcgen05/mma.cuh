// The warp that issues all products of a tile of keys and the tiles of queries that see it. Keys are rows of S and dP:
//
//     S   = K Qᵀ       dP  = V dOᵀ      from shared memory
//     dV += P dO       dK += dS Q       P and dS from tensor memory, where the score warps left them
//     dQ  = dSᵀ K                       dS from shared memory
//
//     tensor cores   │ dV(n)  S(n+1) │      │ dK(n)  dQ(n) │       │ dP(n+1) │ dV(n+1) …
//     score warps    │ dS(n)                │ P(n+1)               │
//     dQ warps                                              │ dQ(n) │
//
// S is written over P, and dQ over dP and dS: the tensor cores compute products in the order in which one thread starts
// them, P and dS are there only when S and dP were read, and dP waits until dQ was read.
#pragma once

#include "backward/key_tiles.cuh"
#include "backward_tcgen05/pipelines.cuh"
#include "ptx/tcgen05.cuh"

namespace jit::backward_tcgen05 {

template <class Config>
class MmaWarp {
  using Traits = KernelTraits<Config>;
  using Element = typename Traits::Element;
  using KTile = typename Traits::KTile;
  using VTile = typename Traits::VTile;
  using QTile = typename Traits::QTile;
  using DoTile = typename Traits::DoTile;
  using DsTile = typename Traits::DsTile;

 public:
  JIT_DEVICE MmaWarp(unsigned smem, unsigned tmem) : tmem_(tmem), pipelines_(smem) {}

  JIT_DEVICE void run(const AttentionParams& params) const {
    unsigned summed = 0;  // tiles of keys that queries see
    const unsigned steps = for_each_key_tile<Config>(
        params, pipelines_, [&](const KeyTile<Config>& keys, bool has_queries, unsigned step) {
          if (has_queries) return multiply(keys.round, summed++, step);
          pipelines_.keys.consumer_release(keys.round);
          return step;
        });
    wait_for_releases(steps);
  }

 private:
  JIT_DEVICE unsigned multiply(unsigned round, unsigned summed, unsigned step) const {
    const unsigned keys = pipelines_.k(round), values = pipelines_.v(round);
    bool is_last = start_scores(keys, step);
    start_d_scores(values, step);
    for (bool accumulates = false;; accumulates = true) {
      const unsigned d_o = pipelines_.d_o.tile(step), q = pipelines_.q.tile(step);
      wait_for(pipelines_.p, step);  // mutate: DvDoesNotWaitForP
      multiply_packed<DoTile>(Traits::dv_column, Traits::scores_column, d_o, Traits::columns_v, accumulates);
      commit(pipelines_.d_o.empty_at(step));  // mutate: DoIsNeverReleased
      const bool was_last = is_last;
      if (!was_last) is_last = start_scores(keys, step + 1);
      wait_for(pipelines_.ds, step);  // mutate: DkDoesNotWaitForDs
      multiply_packed<QTile>(Traits::dk_column, Traits::d_scores_column, q, Traits::columns, accumulates);
      commit(pipelines_.q.empty_at(step));
      start_dq(keys, step);
      if (was_last) break;
      start_d_scores(values, ++step);
    }
    commit(pipelines_.keys.empty_at(round));  // mutate: KeysOfTcgen05AreNeverReleased
    commit(pipelines_.sums.full_at(summed));
    return step + 1;
  }

  // S = K Qᵀ. Returns whether these are the last queries.
  JIT_DEVICE bool start_scores(unsigned keys, unsigned step) const {
    wait_for(pipelines_.q, step);  // mutate: ScoresDoNotWaitForQueries
    const bool is_last = (load_query_info_flags(pipelines_.info(step)) & query_info_end) != 0;
    multiply_rows<KTile, QTile>(Traits::scores_column, keys, pipelines_.q.tile(step));
    commit(pipelines_.scores.full_at(step));
    return is_last;
  }
  // dP = V dOᵀ, over dQ of the step before.
  JIT_DEVICE void start_d_scores(unsigned values, unsigned step) const {
    wait_for(pipelines_.d_o, step);  // mutate: DpDoesNotWaitForDo
    if (step > 0) wait_for_dq(step - 1);
    multiply_rows<VTile, DoTile>(Traits::d_scores_column, values, pipelines_.d_o.tile(step));
    commit(pipelines_.d_scores.full_at(step));
  }
  // dQ = dSᵀ K: all queries, all keys of the block.
  JIT_DEVICE void start_dq(unsigned keys, unsigned step) const {
    // mutate: DsLiesAlongColumns
    constexpr unsigned products = tcgen05_products<Element, Element>(tile_q, Traits::columns, true, true);
    const unsigned long long ds = tcgen05_descriptor(DsTile::along_rows(pipelines_.ds.tile(step), 0)),
                             k = tcgen05_descriptor(KTile::along_rows(keys, 0));
    if (elect_one()) {
#pragma unroll
      for (int i = 0; i < tile_kv / Traits::mma_k; ++i)
        tcgen05_mma<Element>(tmem_ + Traits::dq_column, ds + DsTile::row_step(i), k + KTile::row_step(i),
                             products, i > 0);
      tcgen05_commit(pipelines_.dq_sums.full_at(step));
    }
    __syncwarp();
  }

  // D = A Bᵀ of tiles of 128 rows in shared memory, with the sum along the columns of both.
  template <class A, class B>
  JIT_DEVICE void multiply_rows(int column, unsigned a_tile, unsigned b_tile) const {
    constexpr unsigned products = tcgen05_products<Element, Element>(A::rows, B::rows, false);
    constexpr int steps = is_same<A, KTile> ? Traits::head_dim_steps : Traits::head_dim_v_steps;
    const unsigned long long a = tcgen05_descriptor(A::along_columns(a_tile, 0, 0)),
                             b = tcgen05_descriptor(B::along_columns(b_tile, 0, 0));
    if (elect_one()) {
#pragma unroll
      for (int i = 0; i < steps; ++i)
        tcgen05_mma<Element>(tmem_ + column, a + A::column_step(i), b + B::column_step(i), products, i > 0);
    }
    __syncwarp();
  }
  // D = A B, or D += A B: A of a row for each key, rounded, over the product at column `a`; B of a row for each query.
  template <class B>
  JIT_DEVICE void multiply_packed(int d, int a, unsigned b_tile, int columns, bool accumulates) const {
    const unsigned products = tcgen05_products<Element, Element>(tile_kv, columns, true);
    const unsigned long long b = tcgen05_descriptor(B::along_rows(b_tile, 0));
    if (elect_one()) {
#pragma unroll
      for (int i = 0; i < tile_q / Traits::mma_k; ++i)
        tcgen05_mma<Element>(tmem_ + d, tmem_ + Traits::packed_column(a, i * Traits::mma_k),
                             b + B::row_step(i), products,
                             accumulates || i > 0);  // mutate: SumsBeginWithThoseOfOtherKeys
    }
    __syncwarp();
  }

  JIT_DEVICE void wait_for_dq(unsigned step) const {
    pipelines_.dq_sums.producer_acquire(step + 1);  // mutate: DqIsOverwrittenBeforeItIsRead
    tcgen05_fence_after();
  }
  // The tensor cores arrive at barriers of the block, which must not end before. The release of the last keys, for which the
  // producer waits, is started last, but nothing says that it arrives last.
  JIT_DEVICE void wait_for_releases(unsigned step) const {
    for (int i = 0; i < Traits::layout.q.stages; ++i) pipelines_.q.producer_acquire(step + i);
    for (int i = 0; i < Traits::layout.d_o.stages; ++i) pipelines_.d_o.producer_acquire(step + i);
  }
  static JIT_DEVICE void commit(unsigned barrier) {
    if (elect_one()) tcgen05_commit(barrier);  // mutate: StagesAreReleasedAtOnce
    __syncwarp();
  }

  const unsigned tmem_;
  const Pipelines<Config> pipelines_;
};

}  // namespace jit::backward_tcgen05
