// The threshold of many keys, by a block: radix select whose digit of 11 bits begins where the keys begin to differ.
//
// Counts of a digit say in which bin the threshold lies, and the next digit divides that bin. It ends early where a bin has
// just as many keys as are still wanted. Keys may come from anywhere, more than once.
#pragma once

#include "base/prelude.cuh"
#include "top_k/block_sum.cuh"
#include "top_k/row.cuh"

namespace jit {

/// Counts the lane's bin if it has one. By a whole warp: lanes of one bin, as ties are, wait for one another.
JIT_DEVICE void count_bin(unsigned* bins, bool has_one, unsigned bin) {
  const unsigned lanes = __ballot_sync(full_warp, has_one);
  if (lanes == 0) return;
  const int first = __ffs(static_cast<int>(lanes)) - 1;
  const unsigned shared = __shfl_sync(full_warp, bin, first);
  const unsigned alike = __ballot_sync(full_warp, has_one && bin == shared);
  if (lane_id() == first) atomicAdd(&bins[shared], static_cast<unsigned>(__popc(alike)));
  if (has_one && bin != shared) atomicAdd(&bins[bin], 1u);
}

/// The threshold of the `wanted` ≥ 1 largest keys from `low` to `high`, of which there are more. `for_each_key(f)` calls
/// f(is_there, key), by whole warps. Up to `tolerance` keys more may exceed it. By the whole block, behind a barrier and in front of one.
template <class ForEachKey>
JIT_DEVICE Threshold radix_select(unsigned* bins, unsigned* sums, unsigned* numbers, unsigned low,
                                  unsigned high, int wanted, const ForEachKey& for_each_key,
                                  int tolerance = 0) {
  constexpr int own = top_k_bins / top_k_threads;
  const int last = top_k_bins - 1 - static_cast<int>(threadIdx.x) * own;  // the largest first
#pragma unroll 1
  while (true) {
    const int bits = 32 - __clz(static_cast<int>(high - low));
    const int shift = maximum(0, bits - 11);
#pragma unroll
    for (int i = 0; i < own; ++i) bins[last - i] = 0;
    __syncthreads();  // mutate: CountsBeforeTheyAreZero
    for_each_key([&](bool is_there, unsigned key) {
      count_bin(bins, is_there && key >= low && key <= high, (key - low) >> shift);
    });
    __syncthreads();  // mutate: CountsReadEarly
    int count = 0;
#pragma unroll
    for (int i = 0; i < own; ++i) count += static_cast<int>(bins[last - i]);
    int above = block_sum(count, sums).before;
    if (above < wanted && above + count >= wanted) {
      int bin = last;
      while (above + static_cast<int>(bins[bin]) < wanted) above += static_cast<int>(bins[bin--]);
      numbers[0] = static_cast<unsigned>(bin);
      numbers[1] = static_cast<unsigned>(above);
      numbers[2] = bins[bin];
      numbers[3] = 0;  // the compiler reads all four at once
    }
    __syncthreads();  // mutate: BinReadEarly
    wanted -= static_cast<int>(numbers[1]);
    low += numbers[0] << shift;
    const int in_bin = static_cast<int>(numbers[2]);
    if (in_bin == wanted || in_bin <= tolerance) return {low - 1, 0};
    if (shift == 0) return {low, wanted};
    const unsigned width = (1u << shift) - 1;
    high = high - low < width ? high : low + width;
  }
}

}  // namespace jit
