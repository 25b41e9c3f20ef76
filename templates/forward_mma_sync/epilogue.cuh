// The end of a forward kernel: normalize, convert, write O and LSE.
#pragma once

#include "base/dropout_params.cuh"
#include "base/params.cuh"
#include "base/prelude.cuh"
#include "epilogue/direct_output.cuh"
#include "epilogue/lse.cuh"
#include "epilogue/mean_scores.cuh"
#include "epilogue/output_functor.cuh"
#include "epilogue/quantized_output.cuh"
#include "epilogue/row_maxima.cuh"
#include "forward_mma_sync/block_spans.cuh"
#include "forward_mma_sync/traits.cuh"
#include "problem/entry_sequences.cuh"
#include "ptx/cp_async.cuh"
#include "scheduling/query_block.cuh"
#include "steps/dropout.cuh"
#include "steps/softmax.cuh"
#include "tiles/tile_copy.cuh"

namespace jit::forward_mma_sync {

/// Writes the rows of a warp, of which `warp_row` of the block is the first, by way of shared memory at `o_tile`, so
/// that whole rows, or the warp's columns of them, are written at once; O lies over Q, K and V. `inverse` is what the rows have been multiplied by.
template <class Config, class Rows>
JIT_DEVICE void store_output_by_tile(const Rows& target, int q_begin, int seqlen_q, int warp_row,
                                     const typename KernelTraits<Config>::Output& output,
                                     const float (&inverse)[KernelTraits<Config>::Output::rows],
                                     unsigned o_tile) {
  using Traits = KernelTraits<Config>;
  using Element = OutputElement<Config>;
  using OTile = typename Traits::OTile;
  using Layout = typename Traits::Output::Layout;
  __syncthreads();  // other warps may still be multiplying with what lies here  // mutate: NoBarrierBeforeO
  const int lane = lane_id(), first_column = Traits::first_column();
  o_tile += first_column * ElementTraits<Element>::bytes;
  const unsigned o_address = o_tile + OTile::offset(warp_row + Layout::lane_row(lane), 0) +
                             Layout::lane_column(lane) * ElementTraits<Element>::bytes;
#pragma unroll
  for (int r = 0; r < Traits::Output::rows; ++r) {
#pragma unroll
    for (int d = 0; d < Traits::Output::column_blocks; ++d) {
      const unsigned packed = output.template pack_pair<Element>(r, d);
      asm volatile(
          "st.shared.b32 [%0], %1;" ::"r"(OTile::advance(o_address, Layout::row(0, r / 2, r % 2), d)),
          "r"(keep_if_has_keys(packed, inverse[r]))
          : "memory");
    }
  }
  __syncwarp();  // mutate: NoWarpBarrierInO
  constexpr int columns = Traits::column_warps == 1 ? Config::head_dim_v : Traits::warp_columns;
  store_tile_rows<OTile, columns, Traits::warp_rows, Config::alignment>(
      target.from(0, first_column), q_begin + warp_row, seqlen_q, o_tile, warp_row,
      Traits::column_warps == 1 ? columns : Config::head_dim_v - first_column);
}

/// Writes this block's rows, from `o_tile` in shared memory or from registers. `scales` knows that of values.
template <class Config, class Scales>
JIT_DEVICE void store_output(const AttentionParams& params, typename KernelTraits<Config>::Output& output,
                             const typename KernelTraits<Config>::State& state, BlockSpans<Config>& spans,
                             float scale_log2, Scales& scales, unsigned o_tile) {
  using Traits = KernelTraits<Config>;
  using Layout = typename Traits::Output::Layout;
  const DescaleParams& descale = params.descale;
  float inverse[Traits::Output::rows], lse[Traits::Output::rows];
  [[maybe_unused]] float keys_lse[Traits::Output::rows];
  if constexpr (Traits::has_spans) {
    spans.finish(params, static_cast<int>(blockIdx.x), output, state, scale_log2, inverse, lse);
  } else {
    finish_rows<Layout>(state, scale_log2, inverse, lse, probability_raise<typename Config::Element>);
#pragma unroll
    for (int r = 0; r < Traits::Output::rows; ++r)
      inverse[r] = over_keep_probability<Config>(inverse[r], params.dropout);
    if constexpr (has_mean_score<Config>) {
#pragma unroll
      for (int r = 0; r < Traits::Output::rows; ++r) keys_lse[r] = lse[r];
    }
    if constexpr (Config::sinks) add_sink(params.sequences.sinks[blockIdx.x], inverse, lse);  // of its head
    output.scale_rows(inverse);
  }

  const WorkTile work = query_block<Config, Config::tile_q>(params);
  const auto [batch, head, q_begin] = work;
  const SequencesOf<Config> sequences(params, batch);
  scales.take_values(work);
  scales.scale_output(output);  // mutate: NoScaleOfValues
  const int seqlen_q = sequences.q(batch).length;
  const int warp_row = Traits::first_row();
  if (params.lse != nullptr && Traits::first_column() == 0) {
    add_lse_shift<Config, typename Traits::Output>(descale, params.softmax_scale,  // mutate: LseUnshifted
                                                   sequences.context(batch, head), q_begin + warp_row, lse);
    const auto find_rows = [&]() -> LseRows { return {sequences.lse_rows(batch, head), seqlen_q}; };
    write_lse<typename Traits::Output>(find_rows, q_begin + warp_row, lse);
  }
  if (has_mean_score<Config> && Traits::first_column() == 0) {
    const auto find_rows = [&]() -> LseRows { return {sequences.mean_rows(batch, head), seqlen_q}; };
    write_means<Config, typename Traits::Output>(find_rows, q_begin + warp_row, state, scale_log2, keys_lse,
                                                 lse);
  }
  if (Traits::first_column() == 0) {
    const auto find_rows = [&]() -> RowMaxima { return {sequences.row_max_rows(batch, head), seqlen_q}; };
    raise_maxima<Config, typename Traits::Output>(params, head, find_rows, q_begin + warp_row, state);
  }
  if constexpr (finishes_output<Config>) {
    finish_output<Config>(params, sequences.context(batch, head), output, q_begin + warp_row, inverse,
                          Traits::first_column());
  }
  const auto target = sequences.output_rows(batch, head);
  cp_async_wait_group<0>();  // copies may still be in flight: of Q, say, where there was no key
  if constexpr (quantizes_output<Config>) {
    store_quantized_rows<Config>(params, sequences.context(batch, head), output, q_begin + warp_row,
                                 Traits::first_column());
  } else if constexpr (is_same<Layout, EvenOddLayout>) {
    const SeenShares<Config, Traits::Output::rows> shares;
    const typename Traits::Columns columns(descale, scales.value_slice(), params.heads_kv, shares);
    store_output_rows<Traits>(target, q_begin + warp_row, seqlen_q, output, columns, inverse);
  } else {
    store_output_by_tile<Config>(target, q_begin, seqlen_q, warp_row, output, inverse, o_tile);
  }
}

}  // namespace jit::forward_mma_sync
