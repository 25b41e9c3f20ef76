// The layout of a block's shared memory. Host and NVRTC compile this file; the generated program asserts that both
// compute the same size.
#pragma once

#include "base/element.cuh"
#include "base/host_device.cuh"
#include "pipeline/smem_allocator.cuh"

namespace jit::forward_mma_sync {

/// Byte offsets from the start of dynamic shared memory.
///
///     Q in shared memory:   | Q | K stage 0 | K stage 1 … | V stage 0 | V stage 1 … | scales of keys stage 0 … |
///     Q in registers:       | K stage 0 | K stage 1 … | V stage 0 | V stage 1 … | scales of keys stage 0 … |
///     at the end:           | O |
///
/// Q that goes to registers passes through before K comes; O of 16-bit kernels lies over whatever lay there.
struct SmemLayout {
  int q;
  int k;
  int v;
  int key_scales;  ///< float for each key of each stage of K, if each, or each block, has a scale
  int o;
  int total;
};

/// Sizes of a spec and a config that the layout depends on.
struct SmemSizes {
  int head_dim = 0;
  int head_dim_v = 0;
  int tile_q = 0;
  int tile_kv = 0;
  int stages_k = 0;
  int stages_v = 0;
  bool q_in_registers = false;
  int element_bytes =
      jit::element_bytes;   ///< of q, k and v; those of 8 bits have an O that leaves from registers
  bool key_scales = false;  ///< whether each key, or each block, has a scale of its own
};

JIT_HOST_DEVICE constexpr SmemLayout smem_layout(const SmemSizes& sizes) {
  const int bytes = sizes.element_bytes, mma_k = mma_k_of(bytes);
  const int q_bytes = sizes.tile_q * padded_head_dim(sizes.head_dim, mma_k) * bytes;
  const int k_bytes = sizes.tile_kv * padded_head_dim(sizes.head_dim, mma_k) * bytes;
  const int columns_v = shared_columns(sizes.head_dim_v, column_warps(sizes.head_dim, sizes.head_dim_v));
  const int v_bytes = sizes.tile_kv * columns_v * bytes;
  const int o_bytes = bytes == 1 ? 0 : sizes.tile_q * columns_v * bytes;
  SmemAllocator place;
  SmemLayout layout{};
  layout.q = place.rows(sizes.q_in_registers ? 0 : q_bytes);
  layout.k = place.rows(sizes.stages_k * k_bytes);
  layout.v = place.rows(sizes.stages_v * v_bytes);
  layout.key_scales = place.rows(sizes.key_scales ? sizes.stages_k * sizes.tile_kv * 4 : 0);
  layout.total = place.total();
  if (layout.total < q_bytes) layout.total = q_bytes;
  if (layout.total < o_bytes) layout.total = o_bytes;
  return layout;
}

template <class Config>
JIT_HOST_DEVICE constexpr SmemLayout smem_layout() {
  return smem_layout({.head_dim = Config::head_dim,
                      .head_dim_v = Config::head_dim_v,
                      .tile_q = Config::tile_q,
                      .tile_kv = Config::tile_kv,
                      .stages_k = Config::stages_k,
                      .stages_v = Config::stages_v,
                      .q_in_registers = Config::q_in_registers,
                      .element_bytes = ElementTraits<typename Config::Element>::bytes,
                      .key_scales = has_row_scales<Config>});
}

}  // namespace jit::forward_mma_sync
