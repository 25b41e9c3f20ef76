// Which requests a kernel of a call computes, where two kernels share them. Compiled by the host and by NVRTC.
//
// A request with many queries fills tiles of queries of one head: what counts is how fast tiles are multiplied. One with
// few leaves such tiles empty, so that all heads that share keys have a tile together, and the keys are split over blocks.
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

}  // namespace jit
