// Tensor maps that a kernel by TMA is given beside AttentionParams. Compiled by the host and by NVRTC.
#pragma once

#include "base/tensor_strides.cuh"
#include "scheduling/work_tiles.cuh"

namespace jit {

/// The second parameter of a kernel by TMA with a list of work tiles: where its operands lie and how its work is
/// scheduled.
struct TensorMaps {
  TensorMap q;  ///< box: a panel of a consumer's rows
  TensorMap k;  ///< box: a panel of tile_kv rows, or of those that lie in a page
  TensorMap v;  ///< the same
  TensorMap o;  ///< box: a panel of a consumer's rows
  TileSchedule schedule;
};

/// Maps where sequences may differ in length.
struct SequenceMaps : TensorMaps {
  TensorMap bounded_q;  ///< as q, for boxes that are there in part (tiles/bounded_box.cuh)
  TensorMap bounded_k;
  TensorMap bounded_v;
  TensorMap bounded_o;
};

}  // namespace jit
