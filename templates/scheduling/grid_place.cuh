// The place of a block in a grid of (heads, tiles, …), in two orders. The GPU starts blocks by x first, then y.
#pragma once

#include "base/prelude.cuh"

namespace jit {

/// A tile of all heads before the next one.
struct TileByTile {
  static JIT_DEVICE int head() { return static_cast<int>(blockIdx.x); }
  static JIT_DEVICE int tile() { return static_cast<int>(blockIdx.y); }  ///< of the launch
};

/// All tiles of `group` heads, which read the same rows, before the next heads: blocks that run side by side find rows in
/// the L2 cache that are too many of all heads. Each place has `blocks` blocks.
template <int group, int blocks = 1>
struct GroupByGroup {
  static JIT_DEVICE int head() { return place() / places() * group + place() % group; }
  static JIT_DEVICE int tile() { return place() % places() / group; }  // mutate: TileOfTheGroupTwice

 private:
  static JIT_DEVICE int places() { return group * static_cast<int>(gridDim.y); }  // of a group
  static JIT_DEVICE int place() {
    const unsigned heads = gridDim.x / blocks;
    return static_cast<int>(blockIdx.x / blocks + heads * blockIdx.y);
  }
};

}  // namespace jit
