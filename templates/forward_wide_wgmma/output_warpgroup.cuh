// An output warpgroup: O += P V of half of the columns, in parts, for all tiles of keys of a work tile.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "forward_wide_wgmma/traits.cuh"
#include "mainloop/p_pipeline.cuh"
#include "mainloop/pipelines.cuh"
#include "ptx/warpgroup.cuh"
#include "ptx/wgmma.cuh"
#include "scheduling/tile_sequences.cuh"
#include "scheduling/work_pipeline.cuh"
#include "steps/softmax.cuh"
#include "steps/store_product.cuh"

namespace jit::forward_wide_wgmma {

template <class Config>
class OutputWarpgroup {
  using Traits = KernelTraits<Config>;
  using Work = typename Traits::Work;
  using Part = typename Traits::OutputPart;
  using RowFactors = float[Part::rows];
  static constexpr int parts = Traits::own_parts;

 public:
  /// `index` is that of the warpgroup among those that multiply values.
  JIT_DEVICE OutputWarpgroup(const AttentionParams& params, unsigned smem, int index)
      : params_(params),
        index_(index),
        work_(params, smem),
        p_(smem),
        values_(PanelPipelines<Traits>(smem).v) {
    for (int i = 0; i < index; ++i) values_.advance();  // to the first part of its own
  }

  JIT_DEVICE void run() {
    while (is_work(work_.take())) {
#pragma unroll
      for (int i = 0; i < parts; ++i) output_[i].clear();
      int flags = p_.take();
      while ((flags & p_ends) == 0) {
        if ((flags & p_rescales) != 0) scale_by_factors();
        multiply();
        flags = p_.take();
      }
      finish();
    }
  }

 private:
  // O += P V of a tile of keys, and is done with both.
  JIT_DEVICE void multiply() {
    using P = typename Traits::PTile;
    using V = typename Traits::VPart;
    const unsigned a = lower_word(P::along_columns(uniform(p_.tile()), 0, 0));
#pragma unroll
    for (int i = 0; i < parts; ++i) {
      values_.consumer_wait();  // mutate: NoWaitForAPart
      const unsigned b = lower_word(V::along_rows(uniform(values_.tile()), 0));
      wgmma_hold(output_[i].registers[0]);
      wgmma_fence();
      Config::template wgmma_pv<P, V>(output_[i].registers[0], a, b);
      wgmma_commit_group();
      if (i > 0) {
        wgmma_wait_group<1>();
        values_.consumer_release_before(output_warpgroups);  // mutate: PartReleasedUnderItsProduct
      }
#pragma unroll
      for (int other = 0; other < output_warpgroups; ++other) values_.advance();
    }
    wgmma_wait_group<0>();
#pragma unroll
    for (int i = 0; i < parts; ++i) wgmma_hold(output_[i].registers[0]);
    values_.consumer_release_before(output_warpgroups);
    p_.release();  // mutate: PReleasedUnderTheProduct
  }

  JIT_DEVICE void scale_by_factors() {
    RowFactors factors;
    p_.read_factors(factors);
#pragma unroll
    for (int i = 0; i < parts; ++i) output_[i].scale_rows(factors);
  }

  // Normalizes O and writes it. Rows without keys become 0.
  JIT_DEVICE void finish() {
    RowFactors inverse;
    p_.read_factors(inverse);
    p_.release();
    const Work work = work_.tile();
    work_.release();
    const auto target = output_rows<Config>(params_, work);
    const int row_end = seqlens_of<Config>(params_, work).q.length;
    const int first_row = work.q_begin + reread_thread_index() % warpgroup_size / warp_size * 16;
    using Layout = typename Part::Layout;
#pragma unroll
    for (int i = 0; i < parts; ++i) {
      const int column = Traits::first_column(i * output_warpgroups + index_);
      output_[i].scale_rows(inverse);
#pragma unroll
      for (int r = 0; r < Part::rows; ++r) {
        const int row = Layout::row(first_row + Layout::lane_row(lane_id()), 0, r);
        store_by_quads<Part::column_blocks>(
            target.at(row) + column, Config::head_dim_v - column, row < row_end, [&](int n) {
              return keep_if_has_keys(output_[i].template pack_pair<OutputElement<Config>>(r, n), inverse[r]);
            });
      }
    }
  }

  const AttentionParams& params_;
  const int index_;
  WorkPipeline<Traits> work_;
  PPipeline<Traits> p_;
  decltype(PanelPipelines<Traits>::v) values_;
  Part output_[parts];
};

}  // namespace jit::forward_wide_wgmma
