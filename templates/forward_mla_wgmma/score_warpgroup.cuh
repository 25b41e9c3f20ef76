// The score warpgroup, where consumers do not seesaw: S = Q Kᵀ, mask, softmax, and P for the output warpgroups, tile of keys
// after tile of keys.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "forward_mla_wgmma/block_queries.cuh"
#include "forward_mla_wgmma/held_queries.cuh"
#include "forward_mla_wgmma/tile_functors.cuh"
#include "forward_mla_wgmma/traits.cuh"
#include "mainloop/exchanged_rows.cuh"
#include "mainloop/p_pipeline.cuh"
#include "mainloop/pipelines.cuh"
#include "ptx/bulk_copy.cuh"
#include "ptx/warpgroup.cuh"
#include "ptx/wgmma.cuh"
#include "split_keys/packed_maxima.cuh"
#include "split_keys/result_pieces.cuh"
#include "split_keys/rows_apart.cuh"
#include "split_keys/split_pipeline.cuh"
#include "steps/softmax.cuh"
#include "tiles/shared_words.cuh"

namespace jit::forward_mla_wgmma {

template <class Config>
class ScoreWarpgroup {
  using Traits = KernelTraits<Config>;
  using Element = typename Traits::Element;
  using Scores = typename Traits::Scores;
  using RowFactors = float[Scores::rows];
  using State = RowsState<keeps_largest_scores<Config>, SoftmaxState<Scores::rows>>;

 public:
  JIT_DEVICE ScoreWarpgroup(const AttentionParams& params, unsigned char* bytes, unsigned smem)
      : params_(params),
        scale_log2_(exponent_scale<typename Config::Score>(params.softmax_scale)),
        splits_(bytes, smem),
        queries_(smem),
        infos_(smem),
        panels_(smem),
        p_(smem) {}

  JIT_DEVICE void run() {
    while (splits_.take()) {
      state_ = State();
      if (brings_queries<Config>(splits_.info())) {
        queries_.ask(params_, splits_.info());
        held_.load({params_, splits_.info()}, warp_row());
        queries_.wait();
      }
      multiply_keys();
      if (takes_queries<Config>(splits_.info())) queries_.release();
      raise_packed_maxima<Config, Scores>(params_, splits_.info(), warp_row(), state_);
      splits_.release();
      finish_rows();
    }
  }

 private:
  // All tiles of keys of a split. Where P is handed over late, it waits in registers until the products of the next tile
  // have begun: nothing but the softmax lies between products with keys.
  JIT_DEVICE void multiply_keys() {
    PackedP p;
    for (bool is_first = true;; is_first = false) {
      infos_.k.consumer_wait();
      if (is_first && (infos_.info().flags & key_info_none) != 0) return infos_.release();
      begin_products();
      const bool has_p = Traits::hands_over_late && !is_first;
      if (has_p) write(p);
      end_products();
      if (has_p) p_.commit_fenced();
      const KeyTileInfo info = infos_.info();
      apply_tile_functors<Config>(scores_, params_, infos_, info, splits_.info(), warp_row());
      // mutate: LatentRowsBehindTheSequence
      if (Traits::uses_tma) clear_values(splits_.info().kv.length - info.k_begin);
      infos_.release();
      exponentiate_tile(is_first, p);
      const bool is_last = (info.flags & key_info_end) != 0;
      if (!Traits::hands_over_late || is_last) {
        write(p);
        p_.commit_fenced();
      }
      if (is_last) return;
    }
  }

  // P of a tile of keys, and what O is multiplied by first.
  struct PackedP {
    typename PPipeline<Traits>::Words words;
    RowFactors correction;
    bool moves;
  };

  // S of the tile.
  JIT_DEVICE void begin_products() {
    using Q = typename Traits::QTile;
    using V = typename Traits::VPart;
    const unsigned q = uniform(queries_.tile());
    const auto q_from = [q](int column) {
      return lower_word(
          Q::along_columns(q + (column - Traits::first_query_column) / Q::columns * Q::panel_bytes, 0, 0));
    };
    wgmma_hold(scores_.registers[0]);
    held_.hold();
#pragma unroll
    for (int part = 0; part < Traits::v_parts; ++part) {
      const int column = Traits::first_column(part);
      if constexpr (Traits::fences_keys) {
        if (part % Traits::parts_at_once == 0) wait_for_rows(part);
      } else {
        panels_.v.consumer_wait();  // mutate: NoWaitForAPartOfKeys
      }
      const unsigned b = along_columns<V>(panels_.v.tile());
      wgmma_fence();
      if (column >= Traits::first_query_column) {
        Config::template wgmma_qk<Q, V>(scores_.registers[0], q_from(column), b);
      } else if (part == 0) {
        Config::template wgmma_qk_first<V>(scores_.registers[0], held_.from(column), b);
      } else {
        Config::template wgmma_qk_held<V>(scores_.registers[0], held_.from(column), b);
      }
      panels_.v.advance();
      if constexpr (Traits::has_keys_alone) {
        using K = typename Traits::KPanel;
        if (part + 1 != Traits::parts_before_alone) continue;
        if constexpr (!Traits::fences_keys) panels_.k.consumer_wait();  // mutate: NoWaitForKeysAlone
        wgmma_fence();
        Config::template wgmma_qk_alone<Q, K>(scores_.registers[0], q_from(Config::head_dim_v),
                                              along_columns<K>(panels_.k.tile()));
      }
    }
    wgmma_commit_group();
  }

  // Waits for parts from `first` on whose products are issued at once, the first ones with the keys alone: a fence
  // between products costs as much as some of them.
  JIT_DEVICE void wait_for_rows(int first) const {
    auto parts = panels_.v;
#pragma unroll
    for (int i = 0; i < Traits::parts_at_once; ++i) {
      parts.consumer_wait();
      parts.advance();
    }
    if (Traits::has_keys_alone && first == 0) panels_.k.consumer_wait();
    fence_proxy_async_shared();  // mutate: RowsOfThePeerWithoutProxyFence
  }
  JIT_DEVICE void end_products() {
    wgmma_wait_group<0>();
    wgmma_hold(scores_.registers[0]);
    held_.hold();
    if constexpr (Traits::has_keys_alone) {
      release_keys<Traits>(panels_.k);  // mutate: KeysAloneReleasedUnderTheirProduct
      panels_.k.advance();
    }
  }
  template <class K>
  static JIT_DEVICE unsigned along_columns(unsigned tile) {
    return lower_word(K::along_columns(uniform(tile), 0, 0));
  }

  // Rows from `first` on are not the sequence's. Output warpgroups learn of it with P.
  JIT_DEVICE void clear_values(int first) const {
    using V = typename Traits::VPart;
    if (first >= tile_kv) return;
    bar_sync(Traits::score_barrier, warpgroup_size);  // all have multiplied them
    for (int part = 1; part <= Traits::v_parts; ++part) {
      clear_rows<V, V::panels * V::row_bytes / chunk_bytes, warpgroup_size>(
          panels_.v.tile_before(part), first, reread_thread_index() % warpgroup_size);
    }
  }

  // Softmax, and P.
  JIT_DEVICE void exponentiate_tile(bool is_first, PackedP& p) {
    p.moves = false;
    if (is_first) {
      begin_maximum<split_rescale<Config>>(scores_, state_, scale_log2_);
    } else {
      p.moves = update_maximum<split_rescale<Config>, Element>(scores_, state_, scale_log2_, p.correction);
    }
    exponentiate(scores_, state_, scale_log2_);
#pragma unroll
    for (int step = 0; step < Traits::key_steps; ++step)
      scores_.template pack_step<Element>(p.words[step], 0, step);
  }
  // P for the others.
  JIT_DEVICE void write(const PackedP& p) {
    p_.acquire();  // mutate: LatentPOverPThatIsMultiplied
    p_.write(p.words);
    p_.write_flags(p.moves ? p_rescales : 0, p.correction);  // mutate: LatentRescaleNotTold
    p_.fence();
  }

  // Closes the split: tells the states of its rows.
  JIT_DEVICE void finish_rows() {
    RowFactors maxima, sums;
#pragma unroll
    for (int r = 0; r < Scores::rows; ++r) {
      const float sum = Scores::Layout::reduce(state_.row_sum[r], [](float x, float y) { return x + y; });
      const RowState state = row_state(state_.row_max[r], scale_log2_, sum);
      maxima[r] = state.max;
      sums[r] = state.sum;
    }
    p_.acquire();
    p_.write_rows(maxima);
    p_.write_flags(p_ends, sums);
    p_.commit();
  }

  // The warp's first row in the tile of rows.
  JIT_DEVICE int warp_row() const { return reread_thread_index() % warpgroup_size / warp_size * 16; }

  const AttentionParams& params_;
  const float scale_log2_;
  SplitPipeline<Traits> splits_;
  QueriesOf<Traits> queries_;
  KeyInfoPipeline<Traits> infos_;
  PanelPipelines<Traits> panels_;
  PPipeline<Traits> p_;
  HeldQueries<Traits> held_;
  Scores scores_;
  State state_;
};

}  // namespace jit::forward_mla_wgmma
