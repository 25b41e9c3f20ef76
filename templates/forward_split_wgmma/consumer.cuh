// A consumer: a warpgroup that owns 64 rows of each tile of rows.
//
//     S(n) = Q K(n)ᵀ ┐
//     O += P V(n−1)  ┴─ wait for S(n) ─ mask, softmax ─ wait for O ─ rescale O ─ P(n)
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "forward_split_wgmma/traits.cuh"
#include "mainloop/pipelines.cuh"
#include "pipeline/warpgroup_order_barrier.cuh"
#include "ptx/bulk_copy.cuh"
#include "ptx/wgmma.cuh"
#include "split_keys/load_queries.cuh"
#include "split_keys/packed_maxima.cuh"
#include "split_keys/row_functors.cuh"
#include "split_keys/rows_apart.cuh"
#include "split_keys/split_dequant.cuh"
#include "split_keys/split_params.cuh"
#include "split_keys/split_pipeline.cuh"
#include "split_keys/warp_results.cuh"
#include "steps/softmax.cuh"
#include "steps/wgmma_products.cuh"
#include "tiles/shared_words.cuh"

namespace jit::forward_split_wgmma {

/// The mainloop of one consumer warpgroup, and all its registers.
template <class Config>
class Consumer {
  using Traits = KernelTraits<Config>;
  using Score = typename Config::Score;
  using RowFactors = float[Traits::Scores::rows];
  using State =
      RowsState<keeps_largest_scores<Config>, SoftmaxState<Traits::Scores::rows>, has_mean_score<Config>>;

 public:
  JIT_DEVICE Consumer(const AttentionParams& params, const SplitParams& split_params, unsigned char* bytes,
                      unsigned smem)
      : params_(params),
        split_params_(split_params),
        smem_(smem),
        consumer_(uniform(threadIdx.x / warpgroup_size - 1)),
        scale_log2_(exponent_scale<Score>(params.softmax_scale)),
        scales_(params),
        splits_(bytes, smem),
        q_pipeline_(smem, Traits::layout.q),
        pipelines_(smem),
        order_barrier_(consumer_),
        p_(consumer_) {}

  JIT_DEVICE void run() {
    while (splits_.take()) {
      signal_begun<Config>(split_params_, splits_.info(), thread());
      output_.clear();
      state_ = State();
      if constexpr (has_output_functor<Config>)
        prefetch_numbers<Config>(params_, splits_.info(), first_row());
      scales_.begin_split(splits_.info(), q_);
      // mutate: QueriesReleasedTooEarly
      if (brings_queries<Config>(splits_.info())) q_pipeline_.consumer_wait();
      take_keys();
      if ((info_.flags & key_info_none) != 0) {
        release_k();
      } else {
        multiply_keys();
      }
      if (takes_queries<Config>(splits_.info())) {
        q_pipeline_.consumer_release();
        q_pipeline_.advance();
      }
      scales_.scale_output(output_);
      raise_packed_maxima<Config, typename Traits::Output>(params_, splits_.info(), first_row(), state_);
      finish_split<Traits>(params_, split_params_, splits_.info(),
                           {output_, state_, scale_log2(), first_row()}, {thread()});
      splits_.release();
    }
  }

 private:
  // All tiles of keys of a split.
  JIT_DEVICE void multiply_keys() {
    q_.multiply_qk(scores_, q_tile(), pipelines_.k.tile());
    wgmma_wait_group<0>();
    apply_functors();
    release_k();
    begin_maximum<split_rescale<Config>>(scores_, state_, scale_log2());
    exponentiate(scores_, state_, scale_log2());
    p_.pack_scores(scores_);
    while ((info_.flags & key_info_end) == 0) {
      clear_behind_entry();
      take_keys();
      start_scores_and_output();
      apply_functors();
      release_k();
      RowFactors correction;
      const bool move = update_maximum<split_rescale<Config>>(scores_, state_, scale_log2(), correction);
      exponentiate(scores_, state_, scale_log2());
      finish_output();
      if (move) output_.scale_rows(correction);
      p_.pack_scores(scores_);
    }
    clear_behind_entry();
    pipelines_.v.consumer_wait();
    const int keys = splits_.info().kv.length - info_.k_begin;
    // mutate: RowsBehindTheSequence
    if (keys < Config::tile_kv) clear_values(keys);
    p_.multiply_pv(output_, pipelines_.v.tile(), false);
    finish_output();
  }

  // Clears the values after the end of the sequence, if an entry of a list reaches beyond it. Called before P V.
  JIT_DEVICE void clear_behind_entry() const {
    if constexpr (has_key_lists<Config>) {
      if ((info_.flags & key_info_partial) == 0) return;
      const ListEntry<Config> entry({params_, splits_.info(), info_.k_begin});
      if (entry.first < 0 || entry.first + Config::tile_kv <= entry.end) return;
      pipelines_.v.consumer_wait();
      clear_values(entry.end - entry.first);
    }
  }

  // Clears rows of values from `first` on, which are not the sequence's. By all consumers, which then read the tile.
  JIT_DEVICE void clear_values(int first) const {
    using Tile = typename Traits::VTile;
    clear_rows<Tile, Tile::panels * Tile::row_bytes / chunk_bytes, Traits::consumer_threads>(
        pipelines_.v.tile(), first, thread());
    fence_proxy_async_shared();
    bar_sync(Traits::consumers_barrier, Traits::consumer_threads);
  }

  // Issues S of this tile of keys, and after it O += P V of the tile before.
  JIT_DEVICE void start_scores_and_output() {
    order_barrier_.wait();
    q_.multiply_qk(scores_, q_tile(), pipelines_.k.tile());
    pipelines_.v.consumer_wait();
    p_.multiply_pv(output_, pipelines_.v.tile(), false);
    order_barrier_.pass();
    wgmma_wait_group<1>();
  }

  // Applies scales, the score functor and the mask to the scores.
  JIT_DEVICE void apply_functors() {
    wgmma_hold(scores_.registers[0]);
    scales_.scale_scores(scores_);
    apply_row_functors<Config>(scores_, params_, splits_.info(),
                               score_origin(splits_.info(), info_, first_row()));
  }

  // Waits for O and releases V.
  JIT_DEVICE void finish_output() {
    wgmma_wait_group<0>();
    wgmma_hold(output_.registers[0]);
    p_.hold();
    pipelines_.v.consumer_release();
    pipelines_.v.advance();
  }

  // Waits for the next tile of keys.
  JIT_DEVICE void take_keys() {
    pipelines_.k.consumer_wait();
    info_ = load_key_info(key_tile_info<Traits>(smem_, pipelines_.k.stage()));
  }
  JIT_DEVICE void release_k() {
    pipelines_.k.consumer_release();
    pipelines_.k.advance();
  }

  // Computed at each use, to save registers in the mainloop.
  JIT_DEVICE unsigned q_tile() const { return q_pipeline_.tile() + consumer_ * Traits::QTile::bytes; }
  JIT_DEVICE float scale_log2() const { return scales_.of_exponents(scale_log2_); }
  JIT_DEVICE int thread() const { return reread_thread_index() - warpgroup_size; }
  // The warp's first row in the tile of rows.
  JIT_DEVICE int first_row() const { return thread() / warp_size * 16; }

  const AttentionParams& params_;
  const SplitParams& split_params_;
  const unsigned smem_;
  const int consumer_;
  const float scale_log2_;  // of scores without scales
  SplitDequant<Traits, Queries<Traits>> scales_;
  SplitPipeline<Traits> splits_;
  QPipeline<Traits> q_pipeline_;
  KvPipelines<Traits> pipelines_;
  const WarpgroupOrderBarrier<Traits> order_barrier_;
  Queries<Traits> q_;
  Probabilities<Traits> p_;
  KeyTileInfo info_{0, 0};  // of the tile whose scores are computed
  typename Traits::Scores scores_;
  typename Traits::Output output_;
  State state_;
};

}  // namespace jit::forward_split_wgmma
