// An output warpgroup: O += P V of half of the columns, in parts, for all tiles of keys of a split.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "forward_mla_wgmma/traits.cuh"
#include "mainloop/exchanged_rows.cuh"
#include "mainloop/p_pipeline.cuh"
#include "mainloop/pipelines.cuh"
#include "ptx/warpgroup.cuh"
#include "ptx/wgmma.cuh"
#include "split_keys/result_pieces.cuh"
#include "split_keys/split_params.cuh"
#include "split_keys/split_pipeline.cuh"
#include "split_keys/warp_results.cuh"

namespace jit::forward_mla_wgmma {

template <class Config>
class OutputWarpgroup {
  using Traits = KernelTraits<Config>;
  using Output = typename Traits::Output;
  using RowFactors = float[Output::rows];

 public:
  /// `index` is that of the warpgroup among those that multiply values.
  JIT_DEVICE OutputWarpgroup(const AttentionParams& params, const SplitParams& split_params,
                             unsigned char* bytes, unsigned smem, int index)
      : params_(params),
        split_params_(split_params),
        splits_(bytes, smem),
        values_(PanelPipelines<Traits>(smem).v),
        p_(smem) {
    for (int i = 0; i < index; ++i) values_.advance();  // to the first part of its own
  }

  JIT_DEVICE void run() {
    while (splits_.take()) {
      signal_begun<Config>(split_params_, splits_.info(), thread());
      output_.clear();
      int flags = p_.take();
      while ((flags & p_ends) == 0) {
        if ((flags & p_rescales) != 0) scale_by_factors();
        multiply();
        flags = p_.take();
      }
      finish();
      splits_.release();
    }
  }

 private:
  // O += P V of a tile of keys, and is done with both. The score warpgroup has waited for the tile, and multiplied it,
  // before it handed over P.
  JIT_DEVICE void multiply() {
    using P = typename Traits::PTile;
    using V = typename Traits::VPart;
    const unsigned a = lower_word(P::along_columns(uniform(p_.tile()), 0, 0));
    wgmma_hold(output_.registers[0]);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < Traits::own_parts; ++i) {
      const unsigned b = lower_word(V::along_rows(uniform(values_.tile()), 0));
      Config::template wgmma_pv<P, V>(columns_of_part(i), a, b);
      wgmma_commit_group();
      if (i > 0) {
        wgmma_wait_group<1>();
        release_keys<Traits>(values_, output_warpgroups);  // mutate: LatentPartReleasedUnderItsProduct
      }
#pragma unroll
      for (int other = 0; other < output_warpgroups; ++other) values_.advance();
    }
    wgmma_wait_group<0>();
    wgmma_hold(output_.registers[0]);
    release_keys<Traits>(values_, output_warpgroups);  // mutate: LatentLastPartReleasedUnderItsProduct
    p_.release();                                      // mutate: LatentPReleasedUnderTheProduct
  }
  JIT_DEVICE auto columns_of_part(int i) -> float (&)[Traits::part_blocks][4] {
    return reinterpret_cast<float(&)[Traits::part_blocks][4]>(output_.registers[0][i * Traits::part_blocks]);
  }

  JIT_DEVICE void scale_by_factors() {
    RowFactors factors;
    p_.read_factors(factors);
    output_.scale_rows(factors);
  }

  // Writes the rows of the split, or leaves them to be merged.
  JIT_DEVICE void finish() {
    RowFactors maxima, sums;
    p_.read_rows(maxima);
    p_.read_factors(sums);
    p_.release();
    RowState states[Output::rows];
#pragma unroll
    for (int r = 0; r < Output::rows; ++r) states[r] = {maxima[r], sums[r]};
    finish_split<Traits>(params_, split_params_, splits_.info(),
                         {output_, states, warp_row(), index() * Traits::own_columns}, {thread()});
  }

  // Computed where they are used: they would take registers through the loop.
  JIT_DEVICE int index() const { return thread() / warpgroup_size; }
  JIT_DEVICE int thread() const { return static_cast<int>(reread_thread_index()) - 2 * warpgroup_size; }
  // The warp's first row in the tile of rows.
  JIT_DEVICE int warp_row() const { return reread_thread_index() % warpgroup_size / warp_size * 16; }

  const AttentionParams& params_;
  const SplitParams& split_params_;
  SplitPipeline<Traits> splits_;
  decltype(PanelPipelines<Traits>::v) values_;
  PPipeline<Traits> p_;
  Output output_;
};

}  // namespace jit::forward_mla_wgmma
