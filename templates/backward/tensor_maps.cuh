// Tensor maps that a kernel with TMA takes beside AttentionParams and GradientParams. Compiled by the host
// and by NVRTC.
#pragma once

#include "backward/visits.cuh"
#include "base/host_device.cuh"
#include "base/tensor_strides.cuh"
#include "tiles/panel_tile.cuh"

namespace jit {

// In which order blocks take tiles of keys, whichever is next. Compiled by the host and by NVRTC.
//
// Under a causal mask a head's first tiles have many steps and its last ones few, times the query heads that share them. If
// one head's tiles followed those of another, the last head's long ones would begin late, and their blocks would end long
// after all others. So the first tiles of several heads come together, then their second ones, and so on: the longest first
// ("Bounds on Multiprocessing Timing Anomalies", Graham). Heads that come together share no queries, so they are few.
//
// Tiles of one head are scheduled in ascending order: blocks may wait for those that were scheduled before
// (key_tile_scheduler.cuh).

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

/// Rows of dK and dV that a warp copies to global memory at once, and bytes of its place for them.
inline constexpr int gradient_rows = 16;
JIT_HOST_DEVICE constexpr int gradient_place_bytes(int head_dim, int head_dim_v) {
  const int dk = panel_tile_bytes(gradient_rows, head_dim), dv = panel_tile_bytes(gradient_rows, head_dim_v);
  return dk > dv ? dk : dv;
}

/// How blocks share tiles of keys (key_tile_scheduler.cuh).
struct KeySchedule {
  unsigned* taken;  ///< tiles of keys that blocks asked for, or blocks that began, 0 between launches
  TileOrder
      order;  ///< of the tiles of this launch; of a deterministic kernel of dense sequences only their count
  Turns turns;  ///< of a deterministic kernel
};

/// The third parameter: where the operands lie, in boxes of a panel of a tile's rows, and dK and dV, in boxes of a warp's, how
/// blocks share tiles of keys and in a deterministic kernel how they take turns.
struct TensorMaps {
  TensorMap q;
  TensorMap k;
  TensorMap v;
  TensorMap d_o;
  TensorMap dk;
  TensorMap dv;
  KeySchedule schedule;
};

/// Tensor maps where only the device knows how long sequences are.
struct SequenceMaps : TensorMaps {
  TensorMap bounded_q;  ///< as q, for boxes that are there in part (tiles/bounded_box.cuh)
  TensorMap bounded_k;
  TensorMap bounded_v;
  TensorMap bounded_do;
  TensorMap bounded_dk;
  TensorMap bounded_dv;
};

}  // namespace jit
