// What a kernel with TMA is given beside AttentionParams. Compiled by the host and by NVRTC.
#pragma once

#include "base/tensor_map.cuh"
#include "scheduling/work_tiles.cuh"

namespace jit::forward_wgmma {

/// The second parameter of a wgmma kernel: where its operands lie and how its work is scheduled.
struct TensorMaps {
  TensorMap q;      ///< box: a panel of a consumer's rows
  TensorMap k;      ///< box: a panel of tile_kv rows, or of those that lie in a page
  TensorMap v;      ///< the same
  TensorMap o;      ///< box: a panel of a consumer's rows
  int* counter;     ///< of work tiles that were asked for, 0 between launches
  WorkOrder order;  ///< of the work tiles; not read where sequences differ in length
  int section_keys;  ///< that fit the L2 cache, those of a slice counted once; read where sequences differ in length
};

/// The same where sequences may differ in length.
struct SequenceMaps : TensorMaps {
  TensorMap bounded_q;  ///< as q, for boxes that are there in part (tiles/bounded_box.cuh)
  TensorMap bounded_k;
  TensorMap bounded_v;
  TensorMap bounded_o;
};

}  // namespace jit::forward_wgmma
