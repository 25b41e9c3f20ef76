// The score warpgroup: S = Q Kᵀ, mask, softmax, and P for the output warpgroups, tile of keys after tile of keys.
#pragma once

#include "base/dropout_params.cuh"
#include "base/params.cuh"
#include "base/prelude.cuh"
#include "epilogue/lse.cuh"
#include "forward_wide_wgmma/keys.cuh"
#include "forward_wide_wgmma/traits.cuh"
#include "mainloop/consumer_functors.cuh"
#include "mainloop/consumer_queries.cuh"
#include "mainloop/p_pipeline.cuh"
#include "ptx/ldmatrix.cuh"
#include "ptx/wgmma.cuh"
#include "steps/dropout.cuh"
#include "steps/softmax.cuh"
#include "steps/value_columns.cuh"

namespace jit::forward_wide_wgmma {

template <class Config>
class ScoreWarpgroup {
  using Traits = KernelTraits<Config>;
  using Element = typename Traits::Element;
  using Score = typename Config::Score;
  using Scores = typename Traits::Scores;
  using RowFactors = float[Scores::rows];
  // Panels of Q in registers: the last one, which may be short, stays in shared memory.
  static constexpr int register_panels = minimum(Config::register_panels, Traits::k_panels - 1);
  using Kept = KeptScoresOf<Config, QueriesByKeys, Scores>;
  // Scores that the functor bounds have no large maxima.
  using State = typename ChosenType<!(largest_score<Score> * log2_e < largest_offset),
                                    SoftmaxState<Scores::rows>, BoundedSoftmaxState<Scores::rows>>::type;

 public:
  JIT_DEVICE ScoreWarpgroup(const AttentionParams& params, unsigned smem)
      : params_(params),
        seed_(dropout_seed<Config>(params.dropout)),
        queries_(params, params.descale, smem, 0),
        keys_(smem),
        panels_(PanelPipelines<Traits>(smem).k),
        p_(smem) {}

  JIT_DEVICE void run() {
    while (queries_.take()) {
      load_panels();
      state_ = State();
      keys_.take();
      if (keys_.has_any()) {
        multiply_keys();
      } else {
        keys_.release();
        queries_.release();
      }
      finish_rows();
      queries_.advance();
    }
  }

 private:
  // Loads the first panels of Q, which stay in registers: products read them from shared memory once, not in each tile.
  JIT_DEVICE void load_panels() {
    using Q = typename Traits::QTile;
    const int row = reread_thread_index() % warpgroup_size / warp_size * 16 + lane_id() % 16;
#pragma unroll
    for (int panel = 0; panel < register_panels; ++panel) {
#pragma unroll
      for (int step = 0; step < Traits::panel_steps; ++step) {
        ldmatrix_x4(q_[panel][step],
                    Q::chunk_address(queries_.tile(), row,
                                     2 * (panel * Traits::panel_steps + step) + lane_id() / 16));
      }
    }
  }

  // All tiles of keys of a work tile. P of a tile is handed over when S of the next one is there: so products with values
  // are computed under softmax, and those with keys have the tensor cores for themselves.
  JIT_DEVICE void multiply_keys() {
    bool is_first = true;
    while (true) {
      multiply_panels();
      if (!is_first) p_.commit();
      const bool is_last = keys_.is_last();
      if (is_last) queries_.release();  // mutate: QueriesOfTheWideReleasedEarly
      const Kept kept = kept_scores<QueriesByKeys, Scores>(
          dropout_head<Config>(seed_, params_.heads_q, queries_.work().batch, queries_.work().head,
                               params_.tensors),
          queries_.work().q_begin + queries_.warp_row(), keys_.first_key());
      apply_functors_of_consumer<Traits>(scores_, queries_, keys_, 0);
      keys_.release();
      finish_tile(is_first, kept);
      if (is_last) return p_.commit();
      is_first = false;
      keys_.take();
    }
  }

  // S of the tile, a group for each panel; panels are released as their groups end.
  JIT_DEVICE void multiply_panels() {
    using Q = typename Traits::QTile;
    using K = typename Traits::KPanel;
    constexpr int in_flight = 2;  // groups
    const unsigned q = queries_.tile();
    wgmma_hold(scores_.registers[0]);
#pragma unroll
    for (int panel = 0; panel < Traits::k_panels; ++panel) {
      panels_.consumer_wait();  // mutate: NoWaitForAPanel
      const unsigned a = lower_word(Q::along_columns(uniform(q) + panel * Q::panel_bytes, 0, 0)),
                     b = lower_word(K::along_columns(uniform(panels_.tile()), 0, 0));
      wgmma_fence();
      if (panel < register_panels) {
        if (panel == 0)
          Config::template wgmma_qk_registers_first<K>(scores_.registers[0], q_[panel], b);
        else
          Config::template wgmma_qk_registers<K>(scores_.registers[0], q_[panel], b);
      } else if (panel == 0) {
        Config::template wgmma_qk_first<Q, K>(scores_.registers[0], a, b);
      } else if (panel == Traits::k_panels - 1) {
        Config::template wgmma_qk_last<Q, K>(scores_.registers[0], a, b);
      } else {
        Config::template wgmma_qk<Q, K>(scores_.registers[0], a, b);
      }
      wgmma_commit_group();
      panels_.advance();
      if (panel >= in_flight) {
        wgmma_wait_group<in_flight>();
        panels_.consumer_release_before(in_flight + 1);  // mutate: PanelReleasedUnderItsProduct
      }
    }
    wgmma_wait_group<0>();
    wgmma_hold(scores_.registers[0]);
#pragma unroll
    for (int back = minimum(in_flight, Traits::k_panels); back > 0; --back)
      panels_.consumer_release_before(back);
  }

  // Softmax, and P for the others.
  JIT_DEVICE void finish_tile(bool is_first, const Kept& kept) {
    RowFactors correction = {};
    bool moves = false;
    if (is_first) {
      begin_maximum(scores_, state_, queries_.scale_log2());
    } else {
      moves = update_maximum<Rescale::lazy, Element>(scores_, state_, queries_.scale_log2(), correction);
    }
    exponentiate(scores_, state_, queries_.scale_log2());
    p_.acquire();  // mutate: POverPThatIsMultiplied
    p_.write(scores_, kept);
    p_.write_flags(moves ? p_rescales : 0, correction);  // mutate: RescaleNotTold
  }

  // Closes the work tile: writes LSE, and tells the factors of rows that normalize them.
  JIT_DEVICE void finish_rows() {
    RowFactors inverse, lse;
    jit::finish_rows<MmaLayout>(state_, queries_.scale_log2(), inverse, lse);
#pragma unroll
    for (int r = 0; r < Scores::rows; ++r)
      inverse[r] = over_keep_probability<Config>(inverse[r], params_.dropout);
    if constexpr (Config::sinks) add_sink(params_.sequences.sinks[queries_.work().head], inverse, lse);
    if (params_.lse != nullptr) {
      const typename Traits::Work work = queries_.whole_work();
      write_lse<Scores>(
          [&]() -> LseRows {
            return {lse_rows<Config>(params_, work), seqlens_of<Config>(params_, work).q.length};
          },
          work.q_begin + queries_.warp_row(), lse);
    }
    queries_.release_work();
    p_.acquire();
    p_.write_flags(p_ends, inverse);
    p_.commit();
  }

  const AttentionParams& params_;
  const DropoutSeedOf<Config> seed_;
  ConsumerQueries<Traits> queries_;
  ScoreKeys<Traits> keys_;
  decltype(PanelPipelines<Traits>::k) panels_;
  PPipeline<Traits> p_;
  unsigned q_[register_panels + 1][Traits::panel_steps][4];
  Scores scores_;
  State state_;
};

}  // namespace jit::forward_wide_wgmma
