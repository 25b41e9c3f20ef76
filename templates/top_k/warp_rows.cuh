// Rows that a warp keeps in registers: a lane has a column of each 32. The threshold is found by halving the interval of keys
// that it lies in, until as many scores are above as are wanted: no shared memory, no barriers.
#pragma once

#include "base/warp_sum.cuh"
#include "top_k/row.cuh"

namespace jit {

template <int own>
JIT_DEVICE int count_from(const unsigned (&keys)[own], unsigned least) {
  int count = 0;
#pragma unroll
  for (int i = 0; i < own; ++i) count += keys[i] >= least;
  return __reduce_add_sync(full_warp, count);
}

template <int own>
JIT_DEVICE Threshold warp_threshold(const unsigned (&keys)[own], int wanted) {
  if (count_from(keys, no_key + 1) <= wanted) return {no_key, 0};
  unsigned largest = 0;
#pragma unroll
  for (int i = 0; i < own; ++i) largest = maximum(largest, keys[i]);
  // More than `wanted` keys are at least `low`, and fewer are at least `high`.
  unsigned low = no_key + 1, high = __reduce_max_sync(full_warp, largest) + 1;
  int above = 0;
  if (wanted == 0) return {high - 1, 0};
#pragma unroll 1
  while (high - low > 1) {
    const unsigned middle = low + (high - low) / 2;
    const int count = count_from(keys, middle);
    if (count == wanted) return {middle - 1, 0};
    if (count > wanted) {
      low = middle;
    } else {
      high = middle;
      above = count;
    }
  }
  return {low, wanted - above};
}

/// Of a row that has at most 32 columns for each of a lane's `own` keys. By a whole warp.
template <class Config, int own>
JIT_DEVICE void choose_by_warp(const TopKParams& params, int unit) {
  const TopKRow<Config> row(params, unit);
  const int lane = lane_id();
  unsigned keys[own];
#pragma unroll
  for (int i = 0; i < own; ++i) {
    const int column = i * warp_size + lane;
    keys[i] = row.is_free(column) ? row.key(column) : no_key;
  }
  const Threshold threshold = warp_threshold(keys, row.wanted);
  int* const indices = indices_of(params, row);
  const unsigned lanes_before = (1u << lane) - 1;
  int written = 0, ties = threshold.ties;
#pragma unroll
  for (int i = 0; i < own; ++i) {
    const int column = i * warp_size + lane;
    const unsigned tied = __ballot_sync(full_warp, threshold.key != no_key && keys[i] == threshold.key);
    const bool is_chosen_tie = (tied >> lane & 1) != 0 && __popc(tied & lanes_before) < ties;
    const bool is_chosen = keys[i] > threshold.key || is_chosen_tie || row.is_forced(column);
    const unsigned chosen = __ballot_sync(full_warp, is_chosen);
    if (is_chosen)
      indices[written + __popc(chosen & lanes_before)] = index_of<Config>(params, row.row, column);
    written += __popc(chosen);
    ties -= minimum(ties, __popc(tied));  // mutate: TiesOfEveryWord
  }
  for (int i = written + lane; i < Config::k; i += warp_size) indices[i] = -1;
  if (lane == 0) *count_of(params, row) = written;
}

}  // namespace jit
