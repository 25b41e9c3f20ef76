// The requests that a kernel of a call computes, where two kernels share them. Host and NVRTC compile this file.
//
// A request with many queries fills tiles of queries of one head, and the rate of products decides. A request with few queries
// would leave such tiles nearly empty, so all heads that share keys share a tile, and the keys are split over blocks.
#pragma once

#include "base/host_device.cuh"
#include "jit/options.h"

namespace jit {

/// A request of more queries than these has many. A kernel of split keys takes about twice as long for a row as one of
/// tiles of 128 queries, which takes as long for one query as for 128.
inline constexpr int few_queries = 64;

/// Whether a kernel computes a request of so many queries.
JIT_HOST_DEVICE constexpr bool computes(Requests requests, int queries) {
  return requests == Requests::all || (queries > few_queries) == (requests == Requests::many_queries);
}

// How many multiprocessors decode where another kernel of the call prefills beside them. Compiled by the host and by NVRTC.
//
// Decoding is bound by memory, prefill by the tensor cores. A multiprocessor draws up to twice its share of the memory's
// rate if not all of them decode: so few that decode are done sooner than their number says, and prefill, too, then. In
// the ratio of the work of both, decoding ends before prefill does, and few of them wait for memory.

/// Pairs of a query and a key that one query head multiplies while memory brings one key and value of 16 bits of a KV
/// head: 650 TFLOP/s over 4.3 TB/s.
inline constexpr float pairs_of_a_key = 151;
/// Keys that a query sees in the time that its tile of queries takes beside them: to begin and to end it.
inline constexpr float keys_of_a_tile = 350;

/// The number of blocks that decode, of so many with one on each multiprocessor, where all of them would
/// decode in time `own` and prefill in time `others`.
JIT_HOST_DEVICE constexpr int decoding_blocks(int blocks, float own, float others) {
  if (!(own > 0)) return 1;
  const int share = static_cast<int>(static_cast<float>(blocks) * (own / (own + others)) + 0.5f);
  return share < 1 ? 1 : share;
}

}  // namespace jit
