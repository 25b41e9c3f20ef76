// A consumer: a warpgroup that owns half of the columns of O, and computes the scores of every second tile of keys.
//
//     consumer 0   S(0) ─ softmax ─ give P(0) ─ O += P(0) V │ S(2) ─ take P(1), O += P(1) V ─ softmax ─ give P(2) …
//     consumer 1   S(1) ─────── take P(0), O += P(0) V ─ softmax ─ give P(1) ─ O += P(1) V │ S(3) ─ take P(2) …
//
// While one computes exponentials the other one multiplies. Each tile moves the rows' maxima on from those of the tile
// before, whoever computed that, and O takes in tiles in their order: both halves of it, and all bits, are what one
// warpgroup would come to.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "forward_mla_wgmma/p_exchange.cuh"
#include "forward_mla_wgmma/traits.cuh"
#include "mainloop/pipelines.cuh"
#include "pipeline/pipeline.cuh"
#include "ptx/bulk_copy.cuh"
#include "ptx/wgmma.cuh"
#include "split_keys/load_queries.cuh"
#include "split_keys/row_functors.cuh"
#include "split_keys/split_params.cuh"
#include "split_keys/split_pipeline.cuh"
#include "split_keys/warp_results.cuh"
#include "steps/softmax.cuh"
#include "steps/wgmma_products.cuh"
#include "tiles/shared_words.cuh"

namespace jit::forward_mla_wgmma {

/// Everything that one consumer warpgroup holds.
template <class Config>
class Consumer {
  using Traits = KernelTraits<Config>;
  using Score = typename Config::Score;
  using RowFactors = float[Traits::Scores::rows];

 public:
  JIT_DEVICE Consumer(const AttentionParams& params, const SplitParams& split_params, unsigned char* bytes,
                      unsigned smem)
      : params_(params),
        split_params_(split_params),
        smem_(smem),
        consumer_(uniform(threadIdx.x / warpgroup_size - 1)),
        scale_log2_(exponent_scale<Score>(params.softmax_scale)),
        splits_(bytes, smem),
        q_pipeline_(smem, Traits::layout.q),
        keys_(smem, Traits::layout.k),
        p_exchange_(smem, consumer_) {}

  JIT_DEVICE void run() {
    for (bool is_odd = false; splits_.take(); is_odd = !is_odd) {
      say_begun<Config>(split_params_, splits_.info(), thread());
      output_.clear();
      state_ = SoftmaxState<Traits::Scores::rows>();
      if (brings_queries<Config>(splits_.info())) q_pipeline_.consumer_wait();
      multiply_keys();
      RowFactors sums;
      p_exchange_.add_sums(state_, is_odd, first_row(), sums);
      finish_split<Traits>(
          params_, split_params_, splits_.info(),
          {output_, state_, sums, scale_log2_, first_row(), consumer_ * Traits::consumer_columns},
          {thread()});
      splits_.release();
    }
  }

 private:
  // All tiles of keys of a split.
  JIT_DEVICE void multiply_keys() {
    bool is_own = consumer_ == 0, is_last = false;
    bool has_theirs = false;  // the tile before, whose values are still to be multiplied
#pragma unroll 1
    while (!is_last) {
      take_keys();
      if ((info_.flags & key_info_none) != 0) {
        keys_.consumer_release_before(1);
        break;
      }
      is_last = (info_.flags & key_info_end) != 0;
      if (is_own) multiply_own(has_theirs);
      has_theirs = !is_own;
      is_own = !is_own;
    }
    if (takes_queries<Config>(splits_.info())) {
      q_pipeline_.consumer_release();
      q_pipeline_.advance();
    }
    if (has_theirs) {
      take_theirs();
      multiply_values(1);
    }
  }

  // A tile of this consumer's, and what the other one hands over of the tile before.
  JIT_DEVICE void multiply_own(bool has_theirs) {
    // mutate: LatentRowsBehindTheSequence
    if (Traits::uses_tma) clear_values(splits_.info().kv.length - info_.k_begin);
    q_.multiply_qk(scores_, q_pipeline_.tile(), tile_);
    wgmma_wait_group<0>();
    apply_functors();
    RowFactors maxima, correction;
#pragma unroll
    for (int r = 0; r < Traits::Scores::rows; ++r) maxima[r] = tile_maximum(scores_, r);
    if (has_theirs) take_theirs();
    const bool moves =
        take_maxima<split_rescale<Config>>(maxima, state_, scale_log2_, correction, subtract_from(scores_));
    if (has_theirs) {  // nothing but this on its way: where branches meet the assembler waits for products
      p_exchange_.multiply(output_, keys_.tile_before(2));  // mutate: ValuesOfTheTileBehind
      exponentiate(scores_, state_, scale_log2_);
      finish_values(2);  // mutate: GivenWhileTheOthersAreMultiplied
    } else {
      exponentiate(scores_, state_, scale_log2_);
    }
    p_exchange_.give(scores_, state_, first_row());
    if (moves) output_.scale_rows(correction);  // mutate: NotRescaled
    multiply_values(1);
  }

  // Takes what the other one hands over, and brings O up to its maxima.
  JIT_DEVICE void take_theirs() {
    RowFactors correction;
    if (p_exchange_.take(state_, scale_log2_, first_row(), correction)) output_.scale_rows(correction);
  }

  // O += P V of the last tile that was taken, or of the one before that: `back` is 1 or 2.
  JIT_DEVICE void multiply_values(int back) {
    p_exchange_.multiply(output_, keys_.tile_before(back));
    finish_values(back);
  }
  // Waits for O, and is done with the tile.
  JIT_DEVICE void finish_values(int back) {
    wgmma_wait_group<0>();
    wgmma_hold(output_.registers[0]);
    p_exchange_.hold();
    keys_.consumer_release_before(back);  // mutate: KeysReleasedBeforeTheyAreMultiplied
  }

  // Leaves the scores as the mask and score functors want them.
  JIT_DEVICE void apply_functors() {
    wgmma_hold(scores_.registers[0]);
    apply_row_functors<Config>(scores_, params_, splits_.info(),
                               score_origin(splits_.info(), info_, first_row()));
  }

  // Rows from `first` on are not the sequence's.
  JIT_DEVICE void clear_values(int first) const {
    if (first >= Config::tile_kv) return;
    constexpr int chunks = Config::head_dim_v / ElementTraits<typename Config::Element>::per_chunk;
    clear_rows<typename Traits::KTile, chunks, warpgroup_size>(tile_, first,
                                                               reread_thread_index() % warpgroup_size);
    fence_proxy_async_shared();
    bar_sync(Traits::own_barrier + consumer_, warpgroup_size);
  }

  // Waits for the next tile of keys.
  JIT_DEVICE void take_keys() {
    keys_.consumer_wait();
    tile_ = keys_.tile();
    info_ = load_key_info(key_tile_info<Traits>(smem_, keys_.stage()));
    keys_.advance();
  }

  JIT_DEVICE int thread() const { return static_cast<int>(reread_thread_index()) - warpgroup_size; }
  // The warp's first row in the tile of rows.
  JIT_DEVICE int first_row() const { return reread_thread_index() % warpgroup_size / warp_size * 16; }

  const AttentionParams& params_;
  const SplitParams& split_params_;
  const unsigned smem_;
  const int consumer_;
  const float scale_log2_;
  SplitPipeline<Traits> splits_;
  QPipeline<Traits> q_pipeline_;
  Pipeline<Config::stages, Traits::KTile::bytes> keys_;  // the next tile
  PExchange<Config> p_exchange_;
  Queries<Traits> q_;
  unsigned tile_ = 0;       // of the keys that were taken last
  KeyTileInfo info_{0, 0};  // of the same
  typename Traits::Scores scores_;
  typename Traits::Output output_;
  SoftmaxState<Traits::Scores::rows> state_;
};

}  // namespace jit::forward_mla_wgmma
