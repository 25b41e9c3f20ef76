// What a kernel with TMA is given beside AttentionParams and GradientParams. Compiled by the host and by NVRTC.
#pragma once

#include "backward_wgmma/tile_order.cuh"
#include "backward_wgmma/visits.cuh"
#include "base/tensor_map.cuh"

namespace jit::backward_wgmma {

/// Which of 32 tiles of keys add to a tile of queries, and how many of those in front of them do (turn_words.cuh).
struct TurnWord {
  unsigned adds;
  int before;
};

/// How blocks take turns to add to dQ, where they do (turns.cuh). Arrays are written by the kernel that runs before.
struct Turns {
  HeadVisits visits;  ///< of dense sequences
  int* additions;     ///< to each tile of queries, zeros before the kernel
  int* before;  ///< how many tiles of keys add before each (turn_counts.cuh), from a multiple of 16 bytes on
  TurnWord* words;  ///< in its place where the device alone knows lengths
};

/// The third parameter: where the operands lie, in boxes of a panel of a tile's rows, and dK and dV, in boxes of a warp's, how
/// blocks share tiles of keys (key_tiles.cuh), and in a deterministic kernel how they take turns (turns.cuh).
struct TensorMaps {
  TensorMap q;
  TensorMap k;
  TensorMap v;
  TensorMap d_o;
  TensorMap dk;
  TensorMap dv;
  unsigned* taken;  ///< tiles of keys that blocks asked for, or blocks that began, 0 between launches
  TileOrder
      order;  ///< of the tiles of this launch; of a deterministic kernel of dense sequences only their count
  Turns turns;  ///< of a deterministic kernel
};

/// The same where only the device knows how long sequences are.
struct SequenceMaps : TensorMaps {
  TensorMap bounded_q;  ///< as q, for boxes that are there in part (tiles/bounded_box.cuh)
  TensorMap bounded_k;
  TensorMap bounded_v;
  TensorMap bounded_do;
  TensorMap bounded_dk;
  TensorMap bounded_dv;
};

}  // namespace jit::backward_wgmma
