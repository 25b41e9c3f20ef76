// The place of a block in a grid of (heads, tiles, …), in two orders. The GPU starts blocks by x first, then y.
#pragma once

#include "base/prelude.cuh"

namespace jit {

/// A head, or pair of blocks, and a tile of the launch.
struct GridPlace {
  int head;
  int tile;
};

/// A tile of all heads before the next one.
JIT_DEVICE GridPlace grid_place() { return {static_cast<int>(blockIdx.x), static_cast<int>(blockIdx.y)}; }

/// All tiles of `group` heads, which read the same rows, before the next heads: blocks that run side by side find rows in
/// the L2 cache that are too many of all heads. Each place has `blocks` blocks.
template <int group, int blocks = 1>
JIT_DEVICE GridPlace grid_place_by_group() {
  const int heads = static_cast<int>(gridDim.x) / blocks, of_group = group * static_cast<int>(gridDim.y);
  const int place = static_cast<int>(blockIdx.x) / blocks + heads * static_cast<int>(blockIdx.y);
  const int in_group = place % of_group;
  return {place / of_group * group + in_group % group, in_group / group};  // mutate: TileOfTheGroupTwice
}

}  // namespace jit
