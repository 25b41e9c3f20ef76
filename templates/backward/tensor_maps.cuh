// Tensor maps that a kernel with TMA takes beside AttentionParams and GradientParams. Compiled by the host
// and by NVRTC.
#pragma once

#include "backward/tile_order.cuh"
#include "backward/turn_table.cuh"
#include "base/tensor_map.cuh"
#include "tiles/panel_tile.cuh"

namespace jit {

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
