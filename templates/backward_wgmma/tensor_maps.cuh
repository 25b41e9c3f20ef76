// What a kernel with TMA is given beside AttentionParams and GradientParams. Compiled by the host and by NVRTC.
#pragma once

#include "base/tensor_map.cuh"

namespace jit::backward_wgmma {

/// The third parameter: where the operands lie, in boxes of a panel of a tile's rows.
struct TensorMaps {
  TensorMap q;
  TensorMap k;
  TensorMap v;
  TensorMap d_o;
};

}  // namespace jit::backward_wgmma
