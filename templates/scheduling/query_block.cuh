// The work tile of a block, in kernels with one block per work tile: dense or varlen.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "base/varlen_tiles.cuh"
#include "problem/sequences.cuh"
#include "problem/variable_sequences.cuh"
#include "scheduling/grid_place.cuh"
#include "scheduling/work_tiles.cuh"

namespace jit {

// Finds the tile at a place of the list of varlen tiles.

/// A tile of one sequence.
struct VarlenPlace {
  int batch;
  int first_row;  ///< outside of the sequence if the place is empty: negative, or after its last row
};

/// Finds the last sequence that begins at `place` or before it, testing 32 at a time. `begin(b)` is the first row of
/// sequence b; if begins are not ascending, any place may be empty. By whole warps; all lanes return the same result.
template <int rows, class Begin>
JIT_DEVICE VarlenPlace varlen_place(int place, int batch, const Begin& begin) {
  int first = 0, end = batch;  // the sequence is in [first, end)
#pragma unroll 1
  while (end - first > 1) {
    const int step = (end - first + warp_size - 1) / warp_size;
    const long long probe = first + static_cast<long long>(lane_id()) * step;
    const int own = static_cast<int>(minimum<long long>(probe, end - 1));
    // mutate: ThePlaceInTheSequenceBefore
    const bool is_before = probe < end && first_varlen_tile(own, begin(own), rows) <= place;
    const unsigned before = __ballot_sync(full_warp, is_before);
    if (before != 0) first += (warp_size - 1 - __clz(static_cast<int>(before))) * step;
    end = minimum(end, first + step);
  }
  const long long tile = place - first_varlen_tile(first, begin(first), rows);
  return {first, static_cast<int>(tile * rows)};
}

/// The work tile of this block in a grid of (heads, query tiles, batch). Later queries see more keys under most masks:
/// the blocks of all heads of an order's group start with them, and short blocks at its end even out the load of SMs. Computed at each
/// call, so that a kernel need not keep it in registers through its mainloop; without a division, so that it stays in
/// uniform registers.
template <int tile_q, class Order = TileByTile>
JIT_DEVICE WorkTile block_tile(const AttentionParams& params, int seqlen_q) {
  const int tiles_q = (seqlen_q + tile_q - 1) / tile_q;
  return {.batch = params.batch_begin + static_cast<int>(blockIdx.z),
          .head = Order::head(),
          .q_begin = (tiles_q - 1 - params.q_tile_begin - Order::tile()) * tile_q};
}

/// The work tile of this block; with varlen queries, in a grid of (heads, places of tiles), possibly at an empty place.
template <class Config, int tile_q, class Order = TileByTile>
JIT_DEVICE WorkTile query_block(const AttentionParams& params) {
  if constexpr (Config::sequences_q == SequenceKind::varlen) {
    const VariableSequences<Config> sequences(params);
    const int places = static_cast<int>(varlen_tiles(params.batch, params.sequences.total_q, tile_q));
    const auto [batch, first_query] =
        varlen_place<tile_q>(places - 1 - params.q_tile_begin - Order::tile(), params.batch,
                             [&](int entry) { return sequences.q(entry).begin; });
    return {.batch = batch, .head = Order::head(), .q_begin = first_query};
  } else {
    return block_tile<tile_q, Order>(params, DenseSequences<Config>::longest_q(params));
  }
}

}  // namespace jit
