// In which order blocks take tiles of keys, whichever is next. Compiled by the host and by NVRTC.
//
// Under a causal mask a head's first tiles have many steps and its last ones few, times the query heads that share them. If
// one head's tiles followed those of another, the last head's long ones would begin late, and their blocks would end long
// after all others. So the first tiles of several heads come together, then their second ones, and so on: the longest first
// ("Bounds on Multiprocessing Timing Anomalies", Graham). Heads that come together share no queries, so they are few.
//
// Tiles of one head are scheduled in ascending order: blocks may wait for those that were scheduled before
// (key_tile_scheduler.cuh).
#pragma once

#include "base/host_device.cuh"

namespace jit {

struct TileOrder {
  int key_tiles;       ///< of a head
  int heads;           ///< KV heads of the launch, of all batch entries
  int heads_together;  ///< from 1 on; the last ones may be fewer

  JIT_HOST_DEVICE constexpr int count() const { return key_tiles * heads; }
  /// The tile that is taken as the `number`-th, counted head by head.
  JIT_HOST_DEVICE constexpr int tile(int number) const {
    const int first_head = number / (heads_together * key_tiles) * heads_together;
    const int of_these = number - first_head * key_tiles;
    const int together = heads - first_head < heads_together ? heads - first_head : heads_together;
    return (first_head + of_these % together) * key_tiles + of_these / together;
  }
};

}  // namespace jit
