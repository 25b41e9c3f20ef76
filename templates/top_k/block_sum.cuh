// Sums over the threads of a block.
#pragma once

#include "base/prelude.cuh"
#include "base/warp_sum.cuh"
#include "top_k/params.cuh"

namespace jit {

struct BlockSum {
  int before;  ///< of the threads in front
  int all;
};

/// By the whole block; `of_warps` has a word for each warp, and is free for another sum behind the next barrier.
JIT_DEVICE BlockSum block_sum(int own, unsigned* of_warps) {
  constexpr int warps = top_k_threads / warp_size;
  static_assert(warps <= warp_size);
  const int up_to_lane = sum_up_to_lane(own);
  if (lane_id() == warp_size - 1) of_warps[warp_id()] = static_cast<unsigned>(up_to_lane);
  __syncthreads();  // mutate: SumsOfWarpsReadEarly
  const int of_warp = lane_id() < warps ? static_cast<int>(of_warps[lane_id()]) : 0;
  const int before = __reduce_add_sync(full_warp, lane_id() < warp_id() ? of_warp : 0);
  return {before + up_to_lane - own, __reduce_add_sync(full_warp, of_warp)};
}

}  // namespace jit
