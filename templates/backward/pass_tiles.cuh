// Tiles and loads that both backward passes by mma.sync share. A block owns rows of scores: the queries of dQ, or the keys of
// dK and dV. Its own two tiles stay in shared memory; tiles of the other side pass through a pipeline of stages:
//
//     own          Q, dO   or   K, V
//     other        K, V    or   Q, dO, LSE, delta
//
//     wait for tile n ─ barrier ─ load tile n + ahead ─ the step of tile n
//
// The barrier also guarantees that every warp has finished the previous tile, whose stage the load overwrites; a single
// stage is loaded after a barrier of its own.
#pragma once

#include "base/element.cuh"
#include "base/prelude.cuh"
#include "ptx/cp_async.cuh"
#include "steps/tile_fragments.cuh"
#include "tiles/accumulator.cuh"
#include "tiles/swizzled_tile.cuh"
#include "tiles/tile_copy.cuh"

namespace jit {

/// Traits of a block of `warps` warps that owns `own_rows` rows and takes `other_rows` of the other side at a time.
/// With wide heads, each part of the columns of gradients has as many warps.
template <class Config, int own_rows, int other_rows, int warps = Config::warps,
          int stage_count = Config::stages>
struct PassTraits {
  static_assert(Config::head_dim % 8 == 0 && Config::head_dim >= 8, "head_dim must be a multiple of 8");
  static_assert(Config::head_dim_v % 8 == 0 && Config::head_dim_v >= 8, "head_dim_v must be a multiple of 8");
  static_assert(own_rows % (16 * warps) == 0, "a warp owns a multiple of 16 rows");
  static_assert(other_rows % 16 == 0, "other rows come in multiples of mma's k");

  static constexpr int parts = column_warps(Config::head_dim, Config::head_dim_v);
  static constexpr int threads = warps * parts * warp_size;
  static constexpr int warp_rows = own_rows / warps;
  static constexpr int part_columns = warp_columns(Config::head_dim, parts);
  static constexpr int part_columns_v = warp_columns(Config::head_dim_v, parts);
  static constexpr int padded = parts * part_columns;
  static constexpr int padded_v = parts * part_columns_v;
  static constexpr int steps = padded_head_dim(Config::head_dim) / 16;  ///< of sums along columns
  static constexpr int steps_v = padded_head_dim(Config::head_dim_v) / 16;

  /// The warp's first row in the block, and the part of columns that it has.
  static JIT_DEVICE int first_row() { return (parts == 1 ? warp_id() : warp_id() % warps) * warp_rows; }
  // mutate: GradientsOfTheFirstPart
  static JIT_DEVICE int part() { return parts == 1 ? 0 : warp_id() / warps; }
  static constexpr int stages = stage_count;
  static constexpr int ahead = stages - 1;  ///< tiles by which loads run ahead

  // Accumulators of one warp.
  using Scores = Accumulator<MmaLayout, warp_rows, other_rows>;
  using Gradient = Accumulator<MmaLayout, warp_rows, part_columns>;  ///< of Q or K
  using ValueGradient = Accumulator<MmaLayout, warp_rows, part_columns_v>;

  static constexpr int per_chunk = ElementTraits<typename Config::Element>::per_chunk;
  using OwnTile = SmemTile<own_rows, padded / per_chunk>;
  using OwnTileV = SmemTile<own_rows, padded_v / per_chunk>;
  using OtherTile = SmemTile<other_rows, padded / per_chunk>;
  using OtherTileV = SmemTile<other_rows, padded_v / per_chunk>;

  // Copies of tiles of head_dim, or head_dim_v, columns by the block.
  template <class Tile>
  using Copy = TileCopy<Tile, Config::head_dim, threads, Config::alignment, typename Config::Element>;
  template <class Tile>
  using CopyV = TileCopy<Tile, Config::head_dim_v, threads, Config::alignment, typename Config::Element>;
  // The warp's rows of the block's own tiles.
  using OwnRows = TileFragments<OwnTile, warp_rows / 16>;
  using OwnRowsV = TileFragments<OwnTileV, warp_rows / 16>;
};

/// Commits the group of earlier loads, then starts the copies of the first tiles: `load(i, stage)` starts those of the
/// tile `i` ahead.
template <class Traits, class Tiles, class Load>
JIT_DEVICE void load_first_tiles(const Tiles& tiles, const Load& load) {
  cp_async_commit_group();
#pragma unroll
  for (int i = 0; i < Traits::ahead; ++i) {
    if (tiles.has(i)) load(i, i);
    cp_async_commit_group();
  }
}

/// Calls `step(stage)` for each tile when it has arrived. Then no copy is in flight and no warp reads shared memory.
template <class Traits, class Tiles, class Load, class Step>
JIT_DEVICE void for_each_tile(Tiles& tiles, const Load& load, const Step& step) {
  constexpr int ahead = Traits::ahead;
  // Each load closes its group even when no tile is left: waits count groups.
  const auto load_group = [&](int tile_ahead, int stage) {
    if (tiles.has(tile_ahead)) load(tile_ahead, stage);
    cp_async_commit_group();
  };
  for (int stage = 0; tiles.has(0); tiles.advance(), stage = stage + 1 == Traits::stages ? 0 : stage + 1) {
    if constexpr (ahead == 0) {
      __syncthreads();  // mutate: TheOnlyStageIsOverwritten
      load_group(0, 0);
      cp_async_wait_group<0>();  // mutate: NoWaitForTheOnlyStage
    } else {
      cp_async_wait_group<ahead - 1>();  // mutate: NoWaitForTilesOfPass
    }
    __syncthreads();  // mutate: NoBarrierInPass
    if constexpr (ahead > 0) load_group(ahead, (stage + ahead) % Traits::stages);
    step(stage);
  }
  cp_async_wait_group<0>();
  __syncthreads();  // mutate: NoBarrierBehindPass
}

}  // namespace jit
