// One of two warpgroups that have the same rows and compute scores of every other tile of keys each ("seesaw" of FlashMLA):
// O += P V of half of the columns, of both's tiles.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "forward_mla_wgmma/block_queries.cuh"
#include "forward_mla_wgmma/key_tiles.cuh"
#include "forward_mla_wgmma/p_exchange.cuh"
#include "forward_mla_wgmma/tile_functors.cuh"
#include "forward_mla_wgmma/traits.cuh"
#include "mainloop/pipelines.cuh"
#include "ptx/bulk_copy.cuh"
#include "ptx/warpgroup.cuh"
#include "ptx/wgmma.cuh"
#include "split_keys/packed_maxima.cuh"
#include "split_keys/result_pieces.cuh"
#include "split_keys/rows_apart.cuh"
#include "split_keys/split_params.cuh"
#include "split_keys/split_pipeline.cuh"
#include "split_keys/warp_results.cuh"
#include "steps/softmax.cuh"
#include "tiles/shared_words.cuh"

namespace jit::forward_mla_wgmma {

/// Tiles are in the order of the keys for everyone, and so are sums: which warpgroup begins changes no bit.
///
/// `index` is that of the half of the columns. The first one multiplies P of the other before it computes scores, the second one
/// behind its own, under its softmax: so scores of both come one after another, each under a softmax of the other one, and so do
/// their products with values.
template <class Config, int index>
class SeesawWarpgroup {
  using Traits = KernelTraits<Config>;
  using Element = typename Traits::Element;
  using Scores = typename Traits::Scores;
  using Output = typename Traits::Output;
  using RowFactors = float[Scores::rows];
  using State = RowsState<keeps_largest_scores<Config>, SoftmaxState<Scores::rows>>;
  using Q = typename Traits::QTile;
  using V = typename Traits::VPart;
  using K = typename Traits::KPanel;
  using P = typename Traits::PTile;
  static constexpr int parts = Traits::v_parts, own_parts = Traits::own_parts;
  static constexpr bool leads = index == 0;

 public:
  JIT_DEVICE SeesawWarpgroup(const AttentionParams& params, const SplitParams& split_params,
                             unsigned char* bytes, unsigned smem)
      : params_(params),
        split_params_(split_params),
        scale_log2_(exponent_scale<typename Config::Score>(params.softmax_scale)),
        splits_(bytes, smem),
        queries_(smem),
        infos_(smem),
        tiles_(smem),
        exchange_(smem) {}

  JIT_DEVICE void run() {
    while (splits_.take()) {
      signal_begun<Config>(split_params_, splits_.info(), thread());
      state_ = State();
      output_.clear();
      if (brings_queries<Config>(splits_.info())) {
        queries_.ask(params_, splits_.info());
        queries_.wait();
      }
      multiply_keys();
      if (takes_queries<Config>(splits_.info())) queries_.release();
      raise_packed_maxima<Config, Scores>(params_, splits_.info(), warp_row(), state_);
      finish();
      splits_.release();
    }
  }

 private:
  // All tiles of keys of a split, the first of which is the first warpgroup's.
  JIT_DEVICE void multiply_keys() {
    bool is_first = true, is_last = false, has_other = !leads;
    if (!leads && !pass_other(is_last)) return;
    while (!is_last) {
      infos_.k.consumer_wait();
      const bool begins = leads && is_first;
      if (begins && (infos_.info().flags & key_info_none) != 0) return infos_.release();
      if (leads && !begins) multiply_other(is_first);
      wgmma_hold(scores_.registers[0]);
      begin_scores();
      if constexpr (!leads) begin_values_of_other(is_first);
      wgmma_wait_group<leads ? 0 : 1>();
      wgmma_hold(scores_.registers[0]);
      const KeyTileInfo info = infos_.info();
      apply_tile_functors<Config>(scores_, params_, infos_, info, splits_.info(), warp_row());
      infos_.release();
      RowFactors correction;
      const bool moves = update_maxima(begins, correction);
      exponentiate(scores_, state_, scale_log2_);
      if constexpr (!leads) release_other();
      pack();
      bar_sync(Traits::seesaw_barrier + index, warpgroup_size);  // mutate: PWhereKeysAreMultiplied
      exchange_.give(p_, tiles_.alone(), state_, moves);
      if (moves) output_.scale_rows(correction);  // mutate: OwnRescaleForgotten
      begin_own_values();
      const auto own = tiles_;
      tiles_.advance();
      is_first = false;
      is_last = (info.flags & key_info_end) != 0;
      has_other = !is_last;
      if (has_other) pass_other(is_last);
      release_parts<true>(own);
      wgmma_hold(p_);
    }
    if (has_other) multiply_other(is_first);
  }
  // Learns of the other's tile; false if there is none.
  JIT_DEVICE bool pass_other(bool& is_last) {
    const int flags = infos_.take().flags;
    if ((flags & key_info_none) != 0) return false;
    is_last = (flags & key_info_end) != 0;
    tiles_.advance();
    return true;
  }

  // S of an own tile.
  JIT_DEVICE void begin_scores() {
    const unsigned q = uniform(queries_.tile());
    const auto q_from = [q](int column) {
      return lower_word(Q::along_columns(q + column / Q::columns * Q::panel_bytes, 0, 0));
    };
#pragma unroll
    for (int part = 0; part < parts; ++part) {
      wait_for_rows(part);
      wgmma_fence();
      const unsigned a = q_from(Traits::first_column(part)),
                     b = lower_word(V::along_columns(tiles_.part(part), 0, 0));
      if (part == 0) {
        Config::template wgmma_qk_first<Q, V>(scores_.registers[0], a, b);
      } else {
        Config::template wgmma_qk<Q, V>(scores_.registers[0], a, b);
      }
    }
    if constexpr (Traits::has_keys_alone) {
      wgmma_fence();
      Config::template wgmma_qk_alone<Q, K>(scores_.registers[0], q_from(Config::head_dim_v),
                                            lower_word(K::along_columns(tiles_.alone(), 0, 0)));
    }
    wgmma_commit_group();
  }
  // Waits for parts up to the next fence, the last ones with the keys alone: a fence between products costs as much as some of
  // them.
  JIT_DEVICE void wait_for_rows(int part) const {
    if (part % Traits::parts_at_once != 0) return;
#pragma unroll
    for (int i = 0; i < Traits::parts_at_once; ++i)
      tiles_.wait_for_part(part + i);  // mutate: NoWaitForAPartOfRows
    if (Traits::has_keys_alone && part + Traits::parts_at_once == parts)
      tiles_.wait_for_alone();   // mutate: NoWaitForRowsAlone
    fence_proxy_async_shared();  // mutate: RowsWithoutProxyFence
  }

  // O += P V of own columns of the other's tile, once P is there. Maxima rarely move: then what was begun is waited for.
  JIT_DEVICE void begin_values_of_other(bool is_first) {
    RowFactors correction;
    if (exchange_.take(state_, scale_log2_, correction) && !is_first) {
      if constexpr (!leads) {
        wgmma_wait_group<0>();
        wgmma_hold(scores_.registers[0]);
      }
      wgmma_hold(output_.registers[0]);
      output_.scale_rows(correction);  // mutate: RescaleOfTheOtherForgotten
      if constexpr (!leads) wgmma_hold(scores_.registers[0]);
    }
    const auto other = tiles_.before();
    const unsigned a = lower_word(P::along_columns(other.alone(), 0, 0));
    wgmma_hold(output_.registers[0]);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < own_parts; ++i) {
      Config::template wgmma_pv<P, V>(columns_of_part(i), a, values(other, i));
      if (leads || i + 1 == own_parts) wgmma_commit_group();
    }
  }
  // Waits for it, and releases the tile.
  JIT_DEVICE void release_other() {
    const auto other = tiles_.before();
    release_parts<leads>(other);
    if constexpr (Traits::has_keys_alone) other.release_alone();
  }
  JIT_DEVICE void multiply_other(bool is_first) {
    begin_values_of_other(is_first);
    release_other();
  }
  // O += P V of own columns of the own tile, by parts.
  JIT_DEVICE void begin_own_values() {
    wgmma_hold(output_.registers[0]);
    wgmma_hold(p_);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < own_parts; ++i) {
      Config::template wgmma_pv_held<V>(columns_of_part(i), p_, values(tiles_, i));
      wgmma_commit_group();
    }
  }
  // Waits for products with own parts, and releases these; one by one, where products are groups each.
  template <bool are_groups>
  JIT_DEVICE void release_parts(const KeyTiles<Traits>& tiles) {
    static_assert(own_parts <= 2);
    if constexpr (are_groups && own_parts == 2) {
      wgmma_wait_group<1>();
      tiles.release_part(own_part(0));  // mutate: OwnPartReleasedUnderItsProduct
    }
    wgmma_wait_group<0>();
    wgmma_hold(output_.registers[0]);
    if (!are_groups && own_parts == 2) tiles.release_part(own_part(0));
    tiles.release_part(own_part(own_parts - 1));  // mutate: LastOwnPartReleasedUnderItsProduct
  }
  static JIT_DEVICE constexpr int own_part(int i) { return index * own_parts + i; }
  JIT_DEVICE unsigned values(const KeyTiles<Traits>& tiles, int i) const {
    return lower_word(V::along_rows(tiles.part(own_part(i)), 0));
  }
  JIT_DEVICE auto columns_of_part(int i) -> float (&)[Traits::part_blocks][4] {
    return reinterpret_cast<float(&)[Traits::part_blocks][4]>(output_.registers[0][i * Traits::part_blocks]);
  }

  // Returns whether O is multiplied by `correction` first.
  JIT_DEVICE bool update_maxima(bool begins, RowFactors& correction) {
    if (!begins)
      return update_maximum<split_rescale<Config>, Element>(scores_, state_, scale_log2_, correction);
    begin_maximum<split_rescale<Config>>(scores_, state_, scale_log2_);
    return false;
  }
  JIT_DEVICE void pack() {
#pragma unroll
    for (int step = 0; step < Traits::key_steps; ++step)
      scores_.template pack_step<Element>(p_[step], 0, step);
  }
  // Writes the rows of the split, or leaves them to be merged.
  JIT_DEVICE void finish() {
    RowState states[Output::rows];
#pragma unroll
    for (int r = 0; r < Output::rows; ++r) {
      const float sum = Scores::Layout::reduce(state_.row_sum[r], [](float x, float y) { return x + y; });
      states[r] = row_state(state_.row_max[r], scale_log2_, sum);
    }
    finish_split<Traits>(params_, split_params_, splits_.info(),
                         {output_, states, warp_row(), index * Traits::own_columns}, {thread()});
  }

  // Computed where it is used: it would take a register through the loop.
  JIT_DEVICE int thread() const {
    return static_cast<int>(reread_thread_index()) - Traits::first_consumer_thread;
  }
  // The warp's first row in the tile of rows.
  JIT_DEVICE int warp_row() const { return reread_thread_index() % warpgroup_size / warp_size * 16; }

  const AttentionParams& params_;
  const SplitParams& split_params_;
  const float scale_log2_;
  SplitPipeline<Traits> splits_;
  QueriesOf<Traits> queries_;
  KeyInfoPipeline<Traits> infos_;
  KeyTiles<Traits> tiles_;  // from the next one on
  PExchange<Traits> exchange_;
  typename PExchange<Traits>::Words p_;
  Scores scores_;
  Output output_;
  State state_;
};

}  // namespace jit::forward_mla_wgmma
