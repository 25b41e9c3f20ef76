// A tensor as TMA sees it. Compiled by the host and by NVRTC.
#pragma once

namespace jit {

/// The driver's CUtensorMap: opaque. Maps of q, k, v and o have dimensions (head_dim, seqlen, heads, batch), where pages
/// are batch entries, and all varlen sequences are one; bounded ones those of tiles/bounded_box.cuh.
struct alignas(64) TensorMap {
  unsigned char bytes[128];
};

}  // namespace jit
