// Parameters of an exchange and merge of partial attention states between devices, and the buffer that each rank has for it.
// Compiled by the host and by NVRTC.
#pragma once

#include "base/tensor_strides.cuh"

namespace jit {

inline constexpr int max_exchange_ranks = 16;

/// A wait that timed out, or saw another call than its own. All 0: none.
struct ExchangeFaultRecord {
  unsigned has_fault;
  unsigned peer;        ///< rank that was waited for
  unsigned epoch;       ///< of this call
  unsigned rows;        ///< of a call of this rank; tokens · heads
  unsigned epoch_seen;  ///< of the peer's last call that used the same half of the buffer
  unsigned rows_seen;   ///< of a call of the peer; 2^32 − 1: one of its waits had timed out before
};

/// The beginning of a buffer. All 0 before the first call. The rank itself uses it, and no other.
struct ExchangeHeader {
  unsigned epoch;  ///< of the last call that has ended
  unsigned
      broken;  ///< epoch of the first call that failed, behind which none sends or receives rows; 0: none did
  unsigned blocks;  ///< of the running call that have ended
  ExchangeFaultRecord fault;
};
inline constexpr int exchange_header_bytes = 256;
static_assert(sizeof(ExchangeHeader) <= exchange_header_bytes);

struct ExchangeMergeParams {
  const void* o;     ///< (tokens, heads, head_dim_v): this rank's partial state
  const float* lse;  ///< (heads, tokens)
  void* out;         ///< (tokens, heads, head_dim_v) of what the rank receives
  float* out_lse;    ///< (heads, tokens) of the same; may be null
  TensorStrides o_strides;
  TensorStrides lse_strides;
  TensorStrides out_strides;
  TensorStrides out_lse_strides;
  char* buffers[max_exchange_ranks];  ///< by rank
  unsigned rank;
  unsigned tokens;
  unsigned heads;
  unsigned tiles;              ///< that the buffers have room for
  unsigned long long timeout;  ///< nanoseconds
};

/// Places in a buffer: the header; a flag for each half, tile and rank; then for each half and rank rows of o, and their lse.
template <int row_bytes, int tile_rows, int ranks>
struct ExchangeBuffer {
  static constexpr int pitch = (row_bytes + 15) / 16 * 16;
  static constexpr long long flag_bytes = 2ll * ranks * 8;
  static constexpr long long tile_bytes = flag_bytes + 2ll * ranks * tile_rows * (pitch + 4);
};

}  // namespace jit
