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

/// The largest number that at least `wanted` of the lanes' keys reach, of which none that counts is less than `least`; 0: fewer
/// lanes have keys.
JIT_DEVICE unsigned lane_threshold(unsigned key, unsigned least, int wanted) {
  const unsigned largest = __reduce_max_sync(full_warp, key);
  // Bits that all have are known.
  const int differ = 32 - __clz(static_cast<int>(largest ^ least));
  unsigned threshold = differ == 32 ? 0 : largest >> differ << differ;
#pragma unroll 1
  for (int bit = differ - 1; bit >= 0; --bit) {
    const unsigned higher = threshold | 1u << bit;
    if (__popc(__ballot_sync(full_warp, key >= higher)) >= wanted) threshold = higher;
  }
  return threshold;
}

/// Halves the interval that the threshold lies in: more than `wanted` keys are at least `low`.
template <int own>
JIT_DEVICE Threshold halved_threshold(const unsigned (&keys)[own], unsigned low, unsigned largest,
                                      int wanted) {
  unsigned high = largest + 1;  // fewer are at least that
  int above = 0;
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

/// `few` has a word for each lane.
template <int own>
JIT_DEVICE Threshold warp_threshold(const unsigned (&keys)[own], int wanted, unsigned* few) {
  unsigned most = 0;
#pragma unroll
  for (int i = 0; i < own; ++i) most = maximum(most, keys[i]);
  const unsigned largest = __reduce_max_sync(full_warp, most);
  if (wanted == 0) return {largest, 0};
  // As many lanes as are wanted have a key that is at least `low`, and so that many keys are.
  const unsigned low =
      wanted > warp_size
          ? no_key + 1
          : maximum(lane_threshold(most, __reduce_min_sync(full_warp, most), wanted), no_key + 1);
  const int count = count_from(keys, low);
  if (count <= wanted) return {low - 1, 0};
  if (count > warp_size) return halved_threshold(keys, low, largest, wanted);
  int written = 0;
#pragma unroll
  for (int i = 0; i < own; ++i) {
    const bool is_one = keys[i] >= low;
    const unsigned lanes = __ballot_sync(full_warp, is_one);
    if (is_one) few[written + __popc(static_cast<int>(lanes & ((1u << lane_id()) - 1)))] = keys[i];
    written += __popc(static_cast<int>(lanes));
  }
  __syncwarp();  // mutate: FewKeysReadEarly
  const unsigned key = lane_id() < count ? few[lane_id()] : no_key;
  const unsigned threshold = lane_threshold(key, low, wanted);
  return {threshold, wanted - __popc(__ballot_sync(full_warp, key > threshold))};
}

/// Chooses from a row of at most 32 columns for each of a lane's `own` keys. By a whole warp.
template <class Config, int own>
JIT_DEVICE void choose_by_warp(const TopKParams& params, int unit, unsigned* smem) {
  const TopKRow<Config> row(params, unit);
  const int lane = lane_id();
  unsigned keys[own];
#pragma unroll
  for (int i = 0; i < own; ++i) {
    const int column = i * warp_size + lane;
    keys[i] = row.is_free(column) ? row.key(column) : no_key;
  }
  const Threshold threshold = warp_threshold(keys, row.wanted, smem + warp_id() * warp_size);
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
