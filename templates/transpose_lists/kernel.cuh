// Transposes lists by counting: for each entry, where lists have it, ascending.
//
// Launches follow one another: each counts, scans or fills all entries. Atomic operations leave the places of an entry in any
// order; but they differ from one another, so that sorting them makes one result of all orders. Few places are ranked by a
// warp, each by the number of smaller ones. Many have bits in shared memory, which are read in order, window by window.
#pragma once

#include "base/prelude.cuh"
#include "pipeline/dependent_launch.cuh"
#include "transpose_lists/params.cuh"

namespace jit {

/// Calls f(entry, place) for each entry of a head that counts, a thread for each.
template <class F>
JIT_DEVICE void for_own_entry(const TransposeListsParams& params, int head, F f) {
  const long long own = static_cast<long long>(blockIdx.x) * transpose_threads + threadIdx.x;
  if (own >= static_cast<long long>(params.rows) * params.entries) return;
  const int place = static_cast<int>(own), row = place / params.entries, i = place % params.entries;
  const int count = params.counts == nullptr
                        ? params.entries
                        : params.counts[row * params.count_row + head * params.count_head];
  if (i >= count) return;  // mutate: EntriesBehindTheCount
  const int entry = params.indices[row * params.index_row + head * params.index_head + i];
  if (entry >= 0 && entry < params.limit) f(entry, place);  // mutate: EntriesOutsideOfTheLimit
}

/// The sum over the lanes up to and with this one.
JIT_DEVICE int sum_up_to_lane(int value) {
#pragma unroll
  for (int step = 1; step < warp_size; step *= 2) {
    const int other = __shfl_up_sync(full_warp, value, step);
    if (lane_id() >= step) value += other;
  }
  return value;
}

/// Sums of the warps of a block. Each warp gives one; returns that of the warps in front, and leaves that of all in `all`.
JIT_DEVICE int sum_of_warps_before(int own, int* sums, int& all) {
  constexpr int warps = transpose_threads / warp_size;
  if (lane_id() == 0) sums[warp_id()] = own;
  __syncthreads();  // mutate: SumsBeforeWarpsHaveThem
  int before = 0;
  all = 0;
  for (int i = 0; i < warps; ++i) {
    if (i < warp_id()) before += sums[i];
    all += sums[i];
  }
  __syncthreads();  // the next sums take their place  // mutate: NextSumsOverTheseOnes
  return before;
}

/// Counts become starts, in place: a block has all entries of a head.
JIT_DEVICE void scan_counts(const TransposeListsParams& params, int head, int* sums) {
  constexpr int own_entries = 8;
  int* const starts = params.starts + static_cast<long long>(head) * (params.limit + 1);
  int* const cursors = params.cursors + static_cast<long long>(head) * params.limit;
  int before_all = 0;
#pragma unroll 1
  for (int first = 0; first <= params.limit; first += own_entries * transpose_threads) {
    const int begin = first + static_cast<int>(threadIdx.x) * own_entries;
    int own = 0;
    for (int i = begin; i < begin + own_entries && i < params.limit; ++i) own += starts[i];
    const int up_to = sum_up_to_lane(own);
    int all;
    const int of_warp = __shfl_sync(full_warp, up_to, warp_size - 1);
    int at = before_all + sum_of_warps_before(of_warp, sums, all) + up_to - own;
    for (int i = begin; i < begin + own_entries && i <= params.limit; ++i) {
      const int count = i < params.limit ? starts[i] : 0;
      starts[i] = at;
      if (i < params.limit) cursors[i] = at;
      at += count;
    }
    before_all += all;
  }
}

/// Orders few places of an entry by a warp.
JIT_DEVICE void rank_places(const int* unordered, int* places, int count) {
#pragma unroll 1
  for (int own = lane_id(); own < count; own += warp_size) {
    const int place = unordered[own];
    int rank = 0;
#pragma unroll 4
    for (int i = 0; i < count; ++i) rank += unordered[i] < place;  // mutate: PlacesInAnyOrder
    places[rank] = place;
  }
}

/// Orders any number of places of an entry, all below `end`, by a block.
JIT_DEVICE void order_by_bits(const int* unordered, int* places, int count, long long end, unsigned* bits,
                              int* sums) {
  constexpr int words = transpose_bytes / 4, warps = transpose_threads / warp_size, per_word = 32;
  int written = 0;
#pragma unroll 1
  for (long long first = 0; first < end && written < count; first += words * per_word) {
    const int left = static_cast<int>(minimum<long long>(end - first, words * per_word));
    const int used = (left + per_word - 1) / per_word, of_warp = (used + warps - 1) / warps;
    for (int i = static_cast<int>(threadIdx.x); i < used; i += transpose_threads) bits[i] = 0;
    __syncthreads();  // mutate: PlacesMarkedBeforeTheyAreCleared
    for (int i = static_cast<int>(threadIdx.x); i < count; i += transpose_threads) {
      const long long at = unordered[i] - first;
      if (at >= 0 && at < left) atomicOr(bits + at / per_word, 1u << at % per_word);
    }
    __syncthreads();  // mutate: PlacesCountedBeforeTheyAreMarked
    const int begin = warp_id() * of_warp, stop = minimum(begin + of_warp, used);
    int own = 0;
    for (int i = begin + lane_id(); i < stop; i += warp_size) own += __popc(bits[i]);
    int all;
    int at = written + sum_of_warps_before(__reduce_add_sync(full_warp, own), sums, all);
#pragma unroll 1
    for (int i = begin; i < stop; i += warp_size) {
      unsigned word = i + lane_id() < stop ? bits[i + lane_id()] : 0;
      const int marked = __popc(word), up_to = sum_up_to_lane(marked);
      int own_place = at + up_to - marked;
      for (; word != 0; word &= word - 1)
        places[own_place++] =
            static_cast<int>(first) + (i + lane_id()) * per_word + __popc((word & -word) - 1);
      at += __shfl_sync(full_warp, up_to, warp_size - 1);
    }
    written += all;
    __syncthreads();  // mutate: NextPlacesClearedUnderThese
  }
}

JIT_DEVICE void order_places(const TransposeListsParams& params, int head, unsigned* bits, int* sums) {
  constexpr int warps = transpose_threads / warp_size, most_ranked = 256;
  const int first = static_cast<int>(blockIdx.x) * transpose_block_entries;
  const int end = first + minimum(transpose_block_entries, params.limit - first);
  const int* const starts = params.starts + static_cast<long long>(head) * (params.limit + 1);
  const long long list = static_cast<long long>(head) * params.room;
#pragma unroll 1
  for (int entry = first + warp_id(); entry < end; entry += warps) {
    const int begin = starts[entry], count = starts[entry + 1] - begin;
    if (count <= most_ranked)
      rank_places(params.unordered + list + begin, params.places + list + begin, count);
  }
#pragma unroll 1
  for (int entry = first; entry < end; ++entry) {
    const int begin = starts[entry], count = starts[entry + 1] - begin;
    if (count > most_ranked)
      order_by_bits(params.unordered + list + begin, params.places + list + begin, count,
                    static_cast<long long>(params.rows) * params.entries, bits, sums);
  }
}

template <class Config>
JIT_DEVICE void transpose_lists(const TransposeListsParams& params) {
  extern __shared__ __align__(128) unsigned char smem[];
  int* const sums = reinterpret_cast<int*>(smem);
  const int head = static_cast<int>(blockIdx.y);
  wait_on_dependent_grids();  // mutate: TransposesListsThatAreNotThere
  switch (params.step) {
    case TransposeStep::clear: {
      const long long own = static_cast<long long>(blockIdx.x) * transpose_threads + threadIdx.x;
      if (own <= params.limit) params.starts[static_cast<long long>(head) * (params.limit + 1) + own] = 0;
      break;
    }
    case TransposeStep::count:
      for_own_entry(params, head, [&](int entry, int) {
        atomicAdd(params.starts + static_cast<long long>(head) * (params.limit + 1) + entry, 1);
      });
      break;
    case TransposeStep::scan:
      scan_counts(params, head, sums);
      break;
    case TransposeStep::fill:
      for_own_entry(params, head, [&](int entry, int place) {
        const int at = atomicAdd(params.cursors + static_cast<long long>(head) * params.limit + entry, 1);
        params.unordered[static_cast<long long>(head) * params.room + at] = place;
      });
      break;
    case TransposeStep::order:
      order_places(params, head, reinterpret_cast<unsigned*>(smem + warp_size * sizeof(int)), sums);
      break;
  }
  launch_dependent_grids();
}

}  // namespace jit
