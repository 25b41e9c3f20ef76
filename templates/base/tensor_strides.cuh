// Strides of a tensor, and its tensor map. Host and NVRTC compile this file.
#pragma once

namespace jit {

/// Strides of a (batch, seqlen, heads, head_dim) tensor in elements; the stride of head_dim is 1. Varlen tensors have
/// no batch; in paged ones, pages replace it.
struct TensorStrides {
  long long batch;
  long long seq;
  long long head;
};

/// The driver's CUtensorMap: opaque. Maps of q, k, v and o have dimensions (head_dim, seqlen, heads, batch); pages are
/// batch entries, and varlen sequences form one. Bounded maps are described in tiles/bounded_box.cuh.
struct alignas(64) TensorMap {
  unsigned char bytes[128];
};

}  // namespace jit
