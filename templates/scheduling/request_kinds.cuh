// The requests that a kernel of a call computes, where two kernels share them. Host and NVRTC compile this file.
//
// A request with many queries fills tiles of queries of one head, and is bound by the tensor cores. A request with few
// queries would leave such tiles nearly empty: all heads of a KV head share a tile, and the keys are split over blocks.
#pragma once

#include "base/host_device.cuh"
#include "jit/options.h"

namespace jit {

/// The most queries of a request with few queries. A split-KV kernel takes about twice as long for a row as a kernel
/// with tiles of 128 queries, which in turn takes as long for one query as for 128.
inline constexpr int few_queries = 64;

/// Whether a kernel computes a request of so many queries.
JIT_HOST_DEVICE constexpr bool computes(Requests requests, int queries) {
  return requests == Requests::all || (queries > few_queries) == (requests == Requests::many_queries);
}

// The number of SMs that decode while another kernel of the call prefills. Host and NVRTC compile this.
//
// Decoding is bound by memory, prefill by the tensor cores. An SM draws up to twice its share of the memory bandwidth
// if not all SMs decode, so few decoding SMs finish sooner than in proportion to their number. If SMs are divided in
// the ratio of the work of both kernels, decoding ends before prefill does, and few SMs wait for memory.

/// Query-key pairs that the tensor cores multiply for one query head in the time in which memory delivers one 16-bit
/// key and value of a KV head: 650 TFLOP/s over 4.3 TB/s.
inline constexpr float pairs_of_a_key = 151;
/// The prologue and epilogue of a tile of queries, as the number of keys that takes equally long.
inline constexpr float keys_of_a_tile = 350;

/// The number of blocks that decode, out of `blocks` with one per SM. All of them would take time `own` to decode, and
/// time `others` for the other kernel's work.
JIT_HOST_DEVICE constexpr int decoding_blocks(int blocks, float own, float others) {
  if (!(own > 0)) return 1;
  const int share = static_cast<int>(static_cast<float>(blocks) * (own / (own + others)) + 0.5f);
  return share < 1 ? 1 : share;
}

}  // namespace jit
