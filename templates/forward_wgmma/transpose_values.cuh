// The warps that turn tiles of values of 8 bits over: wgmma sums along the columns of both operands then, and
// memory has a row for each key.
//
//     rows of keys (TMA)                         rows of columns (wgmma)
//     ┌ key 0:  d0 d1 d2 … ┐   ldmatrix.trans,   ┌ d0:  key 0  1  8  9  2  3 10 11 … ┐
//     │ key 1:  d0 d1 d2 … │ ─ bytes picked, ──▶ │ d1:  key 0  1  8  9  2  3 10 11 … │
//     └ …                  ┘   stmatrix          └ …                                 ┘
//
// ldmatrix.trans turns pairs of bytes over; of two registers, for keys 2t, 2t + 1 and 2t + 8, 2t + 9 of a lane of each
// quad, the bytes of one d make a word of a row. So keys stand in the order in which a lane has them of an accumulator
// (PTX ISA, "Register Fragments for wgmma.mma_async.m64nNk32"): P goes from accumulators to operands in place. This is
// FlashAttention-3's way (Shah et al., 2024).
#pragma once

#include "base/prelude.cuh"
#include "forward_wgmma/rings.cuh"
#include "ptx/bulk_tensor.cuh"
#include "ptx/fp8.cuh"
#include "ptx/ldmatrix.cuh"
#include "ptx/math.cuh"
#include "ptx/stmatrix.cuh"
#include "ptx/warpgroup.cuh"
#include "tiles/shared_words.cuh"

namespace jit::forward_wgmma {

/// One warp's part of a tile: of as many chunks of 16 columns d as there are warps, one. Straight code: what a loop adds
/// to addresses would be as many instructions as the work.
template <class Traits>
class TileTransposer {
  using From = typename Traits::StoredVTile;
  using To = typename Traits::VTile;
  static constexpr int keys = 32, columns = 16;  // of a step
  static constexpr int key_steps = From::rows / keys;
  static constexpr int chunks = transposed_rows(Traits::Config::head_dim_v) / columns;
  static constexpr int warps = Traits::converter_warps;

 public:
  static __device__ __forceinline__ void transpose(unsigned from, unsigned to) {
    // Read again: what follows from it would take registers from one tile to the next.
    const unsigned thread = static_cast<unsigned>(reread_thread_index());
    const int warp = static_cast<int>(thread / warp_size % warps),
              lane = static_cast<int>(thread % warp_size);
    // Of each quad of lanes 0 to 3 the first matrix has even columns, of those behind them odd ones, the second matrix
    // the others: eight rows that lie in banks of their own.
    const bool is_upper = lane >= warp_size / 2;
    const unsigned even = 0x6420, odd = 0x7531;
    const unsigned picked[2] = {is_upper ? odd : even, is_upper ? even : odd};
    const int place = lane % 8, matrix = lane / 8;
    const bool is_odd = (place >= 4) != (matrix % 2 != 0);
    const int row = warp * columns + 2 * place + (is_odd ? 1 : 0);
    const unsigned rows = From::chunk_address(from, lane, warp);
    const unsigned columns_of_row = To::chunk_address(to, row, matrix / 2);
#pragma unroll
    for (int chunk = 0; chunk < chunks; chunk += warps) {
      if (chunks % warps != 0 && warp + chunk >= chunks) break;
      transpose_columns(From::chunk_behind(rows, chunk), columns_of_row + chunk * columns * To::row_bytes,
                        picked);
    }
  }

 private:
  static __device__ __forceinline__ void transpose_columns(unsigned rows, unsigned columns_of_row,
                                                           const unsigned (&picked)[2]) {
    constexpr int ahead = 2;  // loads that are on their way at once: more take registers from the consumers
#pragma unroll
    for (int step = 0; step < key_steps; step += ahead) {
      unsigned pairs[ahead][4];
#pragma unroll
      for (int i = 0; i < ahead && step + i < key_steps; ++i)
        ldmatrix_x4_trans(pairs[i], rows + (step + i) * keys * From::row_bytes);
#pragma unroll
      for (int i = 0; i < ahead && step + i < key_steps; ++i) {
        unsigned words[4];
#pragma unroll
        for (int w = 0; w < 4; ++w)
          words[w] = pick_bytes(pairs[i][w / 2 * 2], pairs[i][w / 2 * 2 + 1], picked[w % 2]);
        stmatrix_x4(To::chunk_behind(columns_of_row, 2 * (step + i)), words);
      }
    }
  }
};

/// Leaves ones in the rows of V's buffers behind those of its columns, once for all tiles. By all threads.
template <class Config>
__device__ __forceinline__ void leave_ones(unsigned smem) {
  using Traits = KernelTraits<Config>;
  using Tile = typename Traits::VTile;
  constexpr int first = transposed_rows(Config::head_dim_v), chunks = Tile::row_bytes / chunk_bytes;
  constexpr int of_panel = sum_columns * chunks, of_tile = Tile::panels * of_panel;
  constexpr int ones = four_ones<typename Traits::Element>;
  for (int i = threadIdx.x; i < Config::stages_v * of_tile; i += Traits::threads) {
    const int panel = i % of_tile / of_panel, chunk = i % of_panel;
    const unsigned tile = smem + Traits::layout.v + i / of_tile * Tile::bytes;
    const unsigned address =
        Tile::chunk_address(tile, first, 0) + panel * Tile::panel_bytes + chunk * chunk_bytes;
    store_shared(address, {ones, ones, ones, ones});
  }
  fence_proxy_async_shared();
}

/// Turns over what the loader of values loads, until that says that there is no more.
template <class Config>
__device__ __forceinline__ void transpose_values(unsigned smem) {
  Rings<Config> rings(smem);
  StoredRings<Config> stored(smem);
  while (true) {
    stored.v.wait_full();
    if (load_shared_by_warp(value_note<Config>(smem, stored.v.stage())) == 0) return;
    rings.v.go_with(stored.v);
    rings.v.wait_empty();
    TileTransposer<KernelTraits<Config>>::transpose(stored.v.tile(), rings.v.tile());
    fence_proxy_async_shared();
    stored.v.arrive_empty();
    rings.v.arrive_full();
    stored.v.advance();
  }
}

}  // namespace jit::forward_wgmma
