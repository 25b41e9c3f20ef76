// The end of a forward kernel: normalise, convert, write O and LSE.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "forward_mma_sync/traits.cuh"
#include "problem/sequences.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/math.cuh"
#include "steps/softmax.cuh"
#include "tiles/tile_copy.cuh"
#include "work/block_place.cuh"

namespace jit::forward_mma_sync {

/// Writes this block's rows. O goes through shared memory at `o_tile`, so that whole rows are written at
/// once; it lies over Q, K and V.
template <class Config>
__device__ __forceinline__ void store_output(
    const AttentionParams& params,
    float (&output)[KernelTraits<Config>::row_blocks][KernelTraits<Config>::output_blocks][4],
    const SoftmaxState<KernelTraits<Config>::row_blocks>& state, float scale_log2, unsigned o_tile) {
  using Traits = KernelTraits<Config>;
  using OTile = typename Traits::OTile;
  float lse[Traits::row_blocks][2];
  normalize(output, state, scale_log2, lse);

  const Sequences<Config> sequences(params);
  const auto [batch, head, q_begin] =
      block_tile<Config::tile_q>(params, Sequences<Config>::longest_q(params));
  const int seqlen_q = sequences.q(batch).length;
  const int lane = lane_id();
  const int warp_row = warp_id() * Traits::warp_rows;
  if (params.lse != nullptr && lane % 4 == 0) {
    const auto lse_rows = sequences.lse_rows(batch, head);
#pragma unroll
    for (int m = 0; m < Traits::row_blocks; ++m) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int row = q_begin + warp_row + m * 16 + r * 8 + lane / 4;
        if (row < seqlen_q) *lse_rows.at(row) = lse[m][r];
      }
    }
  }

  // Copies may still be in flight and other warps still multiplying with what lies here.
  cp_async_wait_group<0>();
  __syncthreads();
  const unsigned o_address = o_tile + OTile::offset(warp_row + lane / 4, 0) + lane % 4 * 4;
#pragma unroll
  for (int m = 0; m < Traits::row_blocks; ++m) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
#pragma unroll
      for (int d = 0; d < Traits::output_blocks; ++d) {
        const unsigned packed = pack<OutputElement<Config>>(output[m][d][2 * r], output[m][d][2 * r + 1]);
        asm volatile("st.shared.b32 [%0], %1;" ::"r"(OTile::advance(o_address, m * 16 + r * 8, d)),
                     "r"(packed)
                     : "memory");
      }
    }
  }
  __syncwarp();
  store_tile_rows<OTile, Config::head_dim_v, Traits::warp_rows, Config::alignment>(
      sequences.output_rows(batch, head), q_begin + warp_row, seqlen_q, o_tile, warp_row);
}

}  // namespace jit::forward_mma_sync
