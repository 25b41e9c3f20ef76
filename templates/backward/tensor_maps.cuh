// Tensor maps that a kernel with TMA takes beside AttentionParams and GradientParams. Compiled by the host
// and by NVRTC.
#pragma once

#include "backward/visits.cuh"
#include "base/host_device.cuh"
#include "base/tensor_strides.cuh"
#include "tiles/panel_tile.cuh"

namespace jit {

// The order in which blocks take tiles of keys. Host and NVRTC compile this.
//
// Under a causal mask a head's first tiles have many steps and its last ones few, times the query heads that share
// them. If heads followed one another, the last head's long tiles would begin late, and their blocks would end long
// after all others. So the first tiles of a few heads, which share no queries, come together, then their second ones,
// and so on: the longest first ("Bounds on Multiprocessing Timing Anomalies", Graham).
//
// If blocks wait for each other (turns.cuh), tiles of one head come in the order in which they add to dQ. In that order
// the last tile of keys of a head comes first, so its long tiles come last. Therefore the last heads take the other one,
// all together: blocks end with short tiles.

struct TileOrder {
  int key_tiles;       ///< tiles of keys of a head
  int heads;           ///< KV heads of the launch, of all batch entries
  int heads_together;  ///< heads whose tiles are interleaved, at least 1; the last group may be smaller

  JIT_HOST_DEVICE constexpr int count() const { return key_tiles * heads; }
  /// The tile that is taken `number`-th; tiles are counted head by head.
  JIT_HOST_DEVICE constexpr int tile(int number) const {
    const int first_head = number / (heads_together * key_tiles) * heads_together;
    const int of_these = number - first_head * key_tiles;
    const int together = heads - first_head < heads_together ? heads - first_head : heads_together;
    return (first_head + of_these % together) * key_tiles + of_these / together;
  }
};

/// The order in which blocks that wait for each other draw tiles of keys.
struct DrawnOrder {
  TileOrder order;
  int heads_from_last;  ///< first heads, whose tiles come from the last one to the first, `heads_together` at a time

  JIT_HOST_DEVICE constexpr int tile(int number) const {
    const int key_tiles = order.key_tiles, first = heads_from_last * key_tiles;
    if (number >= first) {
      const int rest = order.heads - heads_from_last;
      const TileOrder last{key_tiles, rest, heads_from_last > 0 ? rest : order.heads_together};
      return first + last.tile(number - first);
    }
    const int mirrored = TileOrder{key_tiles, heads_from_last, order.heads_together}.tile(number);
    const int head = mirrored / key_tiles;
    return (2 * head + 1) * key_tiles - 1 - mirrored;
  }
};

/// Rows of dK and dV that a warp stores at once, and bytes of its buffer for them.
inline constexpr int gradient_rows = 16;
JIT_HOST_DEVICE constexpr int gradient_place_bytes(int head_dim, int head_dim_v) {
  const int dk = panel_tile_bytes(gradient_rows, head_dim), dv = panel_tile_bytes(gradient_rows, head_dim_v);
  return dk > dv ? dk : dv;
}

/// How blocks share tiles of keys (key_tile_scheduler.cuh).
struct KeySchedule {
  /// Requests for tiles of keys so far, or blocks that have begun; `looks_behind` it looks (query_visits.cuh). Both are 0
  /// between launches. Numbers of large rows (large_rows.cuh) lie between them.
  unsigned* taken;
  static constexpr int looks_behind = 3;
  TileOrder order;  ///< of the tiles of this launch; of a kernel whose blocks share heads only their count
  Turns turns;      ///< turns of a deterministic kernel
};

/// The third parameter: tensor maps of the operands, with boxes of a panel of a tile's rows, and of dK and dV, with
/// boxes of a warp's rows; how blocks share tiles of keys and, in a deterministic kernel, take turns.
struct TensorMaps {
  TensorMap q;
  TensorMap k;
  TensorMap v;
  TensorMap d_o;
  TensorMap dk;
  TensorMap dv;
  KeySchedule schedule;
};

/// Tensor maps if lengths of sequences are known only on the device.
struct SequenceMaps : TensorMaps {
  TensorMap bounded_q;  ///< as q, for boxes that exist in part (tiles/bounded_box.cuh)
  TensorMap bounded_k;
  TensorMap bounded_v;
  TensorMap bounded_do;
  TensorMap bounded_dk;
  TensorMap bounded_dv;
};

}  // namespace jit
