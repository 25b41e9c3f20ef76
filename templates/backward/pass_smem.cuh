// The layout of shared memory of a pass of backward by mma.sync (pass_tiles.cuh). Host and NVRTC compile this file; the
// generated program asserts that both compute the same size.
#pragma once

#include "base/element.cuh"
#include "base/host_device.cuh"

namespace jit {

/// Byte offsets from the start of dynamic shared memory. Own tiles stay; gradients are stored through them.
///
///     | Q or K | dO or V | stage 0: K or Q | V or dO | LSE | delta | stage 1 … |
///
/// LSE and delta come with queries.
struct PassSmem {
  int own;      ///< Q, or K
  int own_v;    ///< dO, or V
  int other;    ///< K, or Q, of stage 0
  int other_v;  ///< V, or dO
  int lse_log2;
  int delta;
  int stage_bytes;  ///< from one stage to the next
  int total;
};

/// `statistic_rows` is 0, or the queries of a stage.
JIT_HOST_DEVICE constexpr PassSmem pass_smem(int head_dim, int head_dim_v, int own_rows, int other_rows,
                                             int statistic_rows, int stages) {
  const int warps = column_warps(head_dim, head_dim_v);
  const int row = shared_columns(head_dim, warps) * element_bytes,
            row_v = shared_columns(head_dim_v, warps) * element_bytes;
  // A tile begins at a multiple of 128 bytes.
  const int statistics = (statistic_rows * 4 + 127) / 128 * 128;
  PassSmem smem{};
  smem.own_v = own_rows * row;
  smem.other = smem.own_v + own_rows * row_v;
  smem.other_v = smem.other + other_rows * row;
  smem.lse_log2 = smem.other_v + other_rows * row_v;
  smem.delta = smem.lse_log2 + statistics;
  smem.stage_bytes = other_rows * (row + row_v) + 2 * statistics;
  smem.total = smem.other + stages * smem.stage_bytes;
  return smem;
}

}  // namespace jit
