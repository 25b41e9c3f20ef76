// A consumer warp: 16 queries of each work tile, by mma.sync, one tile of keys after another.
//
//     wait for K(n) ─ S = Q Kᵀ ─ mask ─ release K(n) ─ softmax ─ wait for V(n) ─ O += P V ─ release V(n)
//
// Consumer warps never meet: each proceeds as its tiles arrive, so that products of one overlap with the softmax of another.
#pragma once

#include "base/dropout_params.cuh"
#include "base/params.cuh"
#include "base/prelude.cuh"
#include "epilogue/direct_output.cuh"
#include "epilogue/lse.cuh"
#include "forward_mma_tma/keys.cuh"
#include "forward_mma_tma/traits.cuh"
#include "mainloop/consumer_functors.cuh"
#include "mainloop/consumer_queries.cuh"
#include "ptx/ldmatrix.cuh"
#include "scheduling/tile_sequences.cuh"
#include "steps/block_factors.cuh"
#include "steps/dropout.cuh"
#include "steps/mma_sync_products.cuh"
#include "steps/softmax.cuh"
#include "steps/value_columns.cuh"

namespace jit::forward_mma_tma {

/// The warp's queries as A fragments, in registers or fetched from shared memory step by step.
template <class Traits>
class QueryFragments {
 public:
  /// Takes those at `tile`, the shared address of the queries of four warps.
  JIT_DEVICE void begin(unsigned tile) {
    const int row = reread_thread_index() % warpgroup_size / warp_size * 16 + lane_id() % 16;
    address_ = tile + Traits::QRows::offset(row, lane_id() / 16);
    if constexpr (Traits::q_in_registers) {
#pragma unroll
      for (int step = 0; step < Traits::head_dim_steps; ++step) read(registers_[step], step);
    }
  }
  JIT_DEVICE void get(unsigned (&a)[1][4], int step) const {
    if constexpr (Traits::q_in_registers) {
#pragma unroll
      for (int i = 0; i < 4; ++i) a[0][i] = registers_[step][i];
    } else {
      read(a[0], step);
    }
  }

 private:
  JIT_DEVICE void read(unsigned (&a)[4], int step) const {
    ldmatrix_x4(a, Traits::QRows::advance(address_, 0, 2 * step));
  }

  unsigned address_;  // of the row and chunk that this lane gives to ldmatrix, first step
  unsigned registers_[Traits::q_in_registers ? Traits::head_dim_steps : 1][4];
};

template <class Config>
class ComputingWarp {
  using Traits = KernelTraits<Config>;
  using Element = typename Traits::Element;
  using Scores = typename Traits::Scores;
  using Output = typename Traits::Output;
  using RowFactors = float[Scores::rows];

 public:
  /// `consumer` is the box of queries that the warp has a quarter of.
  JIT_DEVICE ComputingWarp(const AttentionParams& params, unsigned smem, int consumer)
      : params_(params),
        seed_(dropout_seed<Config>(params.dropout)),
        consumer_(consumer),
        queries_(params, params.descale, smem, consumer),
        keys_(smem, consumer) {}

  JIT_DEVICE void run() {
    while (queries_.take()) {
      fragments_.begin(queries_.tile());
      if constexpr (Traits::q_in_registers) queries_.release();  // mutate: TmaQueries
      output_.clear();
      state_ = SoftmaxState<Scores::rows>();
      multiply_keys();
      if constexpr (!Traits::q_in_registers) queries_.release();
      finish();
      queries_.advance();
    }
  }

 private:
  // All tiles of keys of a work tile.
  JIT_DEVICE void multiply_keys() {
    bool sees = true;
    do {
      keys_.take();
      if (!keys_.has_any()) return keys_.release();
      if (sees) {
        step();
      } else {
        keys_.skip();
      }
      sees = sees && !keys_.is_last();  // mutate: TmaKeysLeftOut
    } while (!keys_.is_end());
  }

  // A tile of keys.
  JIT_DEVICE void step() {
    Scores scores;
    multiply_qk<Element, typename Traits::KRows>(scores, fragments_, keys_.k_tile());
    const int first_key = has_dropout<Config> ? keys_.first_key() : 0;
    apply_functors_of_consumer<Traits>(scores, queries_, keys_, consumer_);
    keys_.release();  // mutate: TmaKeysReleasedEarly
    if constexpr (has_block_factors<Config>) {
      online_softmax<Rescale::lazy, Element>(scores, output_, state_, queries_.scale_log2(),
                                             queries_.scales().factors());
    } else {
      online_softmax<Rescale::lazy, Element>(scores, output_, state_, queries_.scale_log2());
    }
    const unsigned v_tile = keys_.take_values();
    if constexpr (Traits::multiplies_fp8) {
      multiply_pv_fp8<Element, typename Traits::VRows>(output_, scores, v_tile);
    } else {
      // Sums are those of all keys.
      const auto kept = kept_scores<QueriesByKeys, Scores>(
          dropout_head<Config>(seed_, params_.heads_q, queries_.work().batch, queries_.work().head,
                               params_.tensors),
          queries_.work().q_begin + queries_.warp_row(), first_key);
      multiply_pv<Element, typename Traits::VRows>(output_, scores, v_tile, kept);
    }
    keys_.release_values();  // mutate: TmaValuesReleasedEarly
  }

  // Closes the work tile: LSE, and O from registers to memory.
  JIT_DEVICE void finish() {
    RowFactors inverse, lse;
    finish_rows<MmaLayout>(state_, queries_.scale_log2(), inverse, lse, probability_raise<Element>);
    const typename Traits::Work work = queries_.whole_work();
    const int first_row = work.q_begin + queries_.warp_row(),
              row_end = seqlens_of<Config>(params_, work).q.length;
    auto& scales = queries_.scales();
    scales.take_values(work);
#pragma unroll
    for (int r = 0; r < Scores::rows; ++r)
      inverse[r] = over_keep_probability<Config>(inverse[r], params_.dropout);
    if constexpr (has_lse_shifts<Config>)
      add_lse_shift<Config, Output>(params_.descale, params_.softmax_scale, queries_.context(), first_row,
                                    lse);
    SeenShares<Config, Output::rows> shares;
    if constexpr (Config::sinks) shares.add_sink(params_.sequences.sinks[work.head], inverse, lse);
    if (params_.lse != nullptr) {
      write_lse<Output>(
          [&]() -> LseRows {
            return {lse_rows<Config>(params_, work), row_end};
          },
          first_row, lse);
    }
    queries_.release_work();
    RowFactors factors;
#pragma unroll
    for (int r = 0; r < Output::rows; ++r) factors[r] = scales.output_factor(inverse[r]);
    output_.scale_rows(factors);
    const typename Traits::Columns columns(params_.descale, scales.value_slice(), params_.heads_kv, shares);
    store_output_rows<Traits>(output_rows<Config>(params_, work), first_row, row_end, output_, columns,
                              inverse);
  }

  const AttentionParams& params_;
  const DropoutSeedOf<Config> seed_;
  const int consumer_;
  ConsumerQueries<Traits> queries_;
  WarpKeys<Traits> keys_;
  QueryFragments<Traits> fragments_;
  SoftmaxState<Scores::rows> state_;
  Output output_;
};

}  // namespace jit::forward_mma_tma
