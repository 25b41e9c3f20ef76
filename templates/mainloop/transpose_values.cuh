// The warps that transpose tiles of 8-bit values: wgmma then sums along the columns of both operands, and memory has a row
// for each key.
//
//     rows of keys (TMA)                         rows of columns (wgmma)
//     ┌ key 0:  d0 d1 d2 … ┐   ldmatrix.trans,   ┌ d0:  key 0  1  8  9  2  3 10 11 … ┐
//     │ key 1:  d0 d1 d2 … │ ─ bytes picked, ──▶ │ d2:  key 0  1  8  9  2  3 10 11 … │
//     └ …                  ┘   stmatrix          │ …    of 16 columns the even ones  │
//                                                └ d1:  then the odd ones            ┘
//
// ldmatrix.trans transposes pairs of bytes; of two registers, for keys 2t, 2t + 1 and 2t + 8, 2t + 9 of a lane of each
// quad, the bytes of one d make a word of a row. So keys stand in the order in which a lane has them of an accumulator
// (PTX ISA, "Register Fragments for wgmma.mma_async.m64nNk32"): P goes from accumulators to operands in place. This is
// FlashAttention-3's way (Shah et al., 2024). Columns stand in the order of EvenOddLayout: a lane has four neighbors
// of a row of O.
#pragma once

#include "base/prelude.cuh"
#include "mainloop/pipelines.cuh"
#include "ptx/bulk_copy.cuh"
#include "ptx/fp8.cuh"
#include "ptx/ldmatrix.cuh"
#include "ptx/math.cuh"
#include "ptx/warpgroup.cuh"
#include "tiles/shared_words.cuh"

namespace jit {

/// One warp's part of a tile: of as many chunks of 16 columns d as there are warps, one. Straight code: what a loop
/// adds to addresses would be as many instructions as the work.
template <class Traits>
class TileTransposer {
  using From = typename Traits::StoredVTile;
  using To = typename Traits::VTile;
  static constexpr int keys = 32, columns = 16;  // of a step
  static constexpr int key_steps = From::rows / keys;
  static constexpr int chunks = Traits::v_columns / columns;
  static constexpr int warps = Traits::converter_warps;
  static constexpr int steps = (chunks + warps - 1) / warps * key_steps;  // of a warp, chunk by chunk
  // Loads that are on their way at once: more take registers from the consumers.
  static constexpr int ahead = 2;

 public:
  static JIT_DEVICE void transpose(unsigned from, unsigned to) {
    // Read again: what follows from it would take registers from one tile to the next.
    const unsigned thread = static_cast<unsigned>(reread_thread_index());
    const int warp = static_cast<int>(thread / warp_size % warps),
              lane = static_cast<int>(thread % warp_size);
    const int place = lane % 8, matrix = lane / 8;
    const unsigned rows = From::chunk_address(from, lane, warp);
    // Even columns are in the first and the third of the matrices that are stored.
    const unsigned columns_of_row =
        To::chunk_address(to, warp * columns + matrix % 2 * 8 + place, matrix / 2);  // mutate: TransposedRows
    unsigned pairs[ahead][4];
    const auto is_there = [&](int step) {
      const int chunk = chunk_of(step);
      return step < steps && (chunk + warps <= chunks || warp + chunk < chunks);
    };
    const auto load = [&](int step) {
      if (is_there(step)) {
        ldmatrix_x4_trans(pairs[step % ahead], From::chunk_behind(rows, chunk_of(step)) +
                                                   step % key_steps * keys * From::row_bytes);
      }
    };
#pragma unroll
    for (int step = 0; step < ahead; ++step) load(step);
#pragma unroll
    for (int step = 0; step < steps; ++step) {
      if (!is_there(step)) break;
      const unsigned even = 0x6420, odd = 0x7531;  // mutate: TransposedBytes
      const unsigned(&own)[4] = pairs[step % ahead];
      const unsigned words[4] = {pick_bytes(own[0], own[1], even), pick_bytes(own[0], own[1], odd),
                                 pick_bytes(own[2], own[3], even), pick_bytes(own[2], own[3], odd)};
      load(step + ahead);  // before these are stored, so that none waits for a load that has just begun
      stmatrix_x4(
          To::chunk_behind(columns_of_row + chunk_of(step) * columns * To::row_bytes, 2 * (step % key_steps)),
          words);
    }
  }

 private:
  // mutate: OneChunkForAllWarps
  static JIT_DEVICE constexpr int chunk_of(int step) { return step / key_steps * warps; }
};

/// Writes ones in the rows of V's buffers behind those of its columns, once for all tiles. By all threads.
template <class Traits>
JIT_DEVICE void write_ones(unsigned smem) {
  using Config = typename Traits::Config;
  using Tile = typename Traits::VTile;
  constexpr int first = Traits::v_columns, chunks = Tile::row_bytes / chunk_bytes;
  constexpr int of_panel = Traits::v_sum_columns * chunks, of_tile = Tile::panels * of_panel;
  constexpr int ones = four_ones<typename Traits::Element>;
  for (int i = threadIdx.x; i < Config::stages_v * of_tile; i += Traits::threads) {
    const int panel = i % of_tile / of_panel, chunk = i % of_panel;
    const unsigned tile = smem + Traits::layout.v.tiles + i / of_tile * Tile::bytes;
    const unsigned address =
        Tile::chunk_address(tile, first, 0) + panel * Tile::panel_bytes + chunk * chunk_bytes;
    store_shared(address, {ones, ones, ones, ones});
  }
  fence_proxy_async_shared();
}

/// Transposes what the producer of values loads, until that says that there is no more.
template <class Traits>
JIT_DEVICE void transpose_values(unsigned smem) {
  KvPipelines<Traits> pipelines(smem);
  StoredKvPipelines<Traits> stored(smem);
  while (true) {
    stored.v.consumer_wait();
    if (load_shared_by_warp(value_info<Traits>(smem, stored.v.stage())) == 0) return;
    pipelines.v.take_state_of(stored.v);
    pipelines.v.producer_acquire();  // mutate: NoWaitForRoom
    // mutate: RowsReleasedBeforeTheyAreRead
    TileTransposer<Traits>::transpose(stored.v.tile(), pipelines.v.tile());
    fence_proxy_async_shared();  // mutate: NoFenceBehindStores
    stored.v.consumer_release();
    pipelines.v.producer_commit();
    stored.v.advance();
  }
}

}  // namespace jit
