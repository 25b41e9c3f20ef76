// Where the elements of a tensor lie, and a tensor as TMA sees it. Compiled by the host and by NVRTC.
#pragma once

namespace jit {

/// Strides of a (batch, seqlen, heads, head_dim) tensor in elements; the stride of head_dim is 1. Varlen tensors have
/// no batch, and pages stand in its place.
struct TensorStrides {
  long long batch;
  long long seq;
  long long head;
};

/// The driver's CUtensorMap: opaque. Maps of q, k, v and o have dimensions (head_dim, seqlen, heads, batch), where pages
/// are batch entries, and all varlen sequences are one; bounded ones those of tiles/bounded_box.cuh.
struct alignas(64) TensorMap {
  unsigned char bytes[128];
};

}  // namespace jit
