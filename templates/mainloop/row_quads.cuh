// How warps that copy rows of a tile of keys share them out. Compiled by the host and by NVRTC.
#pragma once

#include "base/host_device.cuh"

namespace jit {

/// Producer warps that copy rows; one more finds out where these lie.
inline constexpr int row_copy_warps = 3;
/// Tiles of which it is known ahead where their rows lie.
inline constexpr int stages_plans = 2;
/// Rows that lie side by side in a tile, which a warp copies together.
inline constexpr int quad_rows = 4;

/// Bytes of a plan: the number of each row, and what all have in common.
JIT_HOST_DEVICE constexpr int plan_bytes(int tile_rows) { return tile_rows * 4 + 16; }

/// The quads of a tile of so many that are a warp's, first, first + row_copy_warps, …: warps have quads in turns, from one tile
/// to the next.
struct OwnQuads {
  int first;

  /// Goes to the next tile.
  JIT_HOST_DEVICE constexpr void advance(int quads) {
    const int first_behind = first + (row_copy_warps - quads % row_copy_warps);
    first = first_behind >= row_copy_warps ? first_behind - row_copy_warps : first_behind;
  }
};

}  // namespace jit
