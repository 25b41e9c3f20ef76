// Text masks whose text can be evaluated with intervals of q and k: they classify whole tiles without help from the
// user.
#pragma once

#include "base/element.cuh"
#include "base/prelude.cuh"
#include "problem/functor.cuh"
#include "problem/interval.cuh"

namespace jit {

/// An element of a tensor; every number, unless its index is exact and the text certainly reads it.
template <class T, class Element>
JIT_DEVICE Interval<T> element(const Interval<bool>& reads, const Interval<long long>& index,
                               const Element* tensor) {
  if (!reads.low || !index.is_exact()) return any<T>();
  if constexpr (is_same<T, float>) {
    return exactly(to_float(tensor[index.low]));
  } else {
    return exactly(static_cast<T>(tensor[index.low]));
  }
}

/// Base of `Mask`, which adds `keep` (unless only tiles are classified), its interval version, and whether it depends
/// on the head:
///   Interval<bool> kept_of(const Interval<int>& q, const Interval<int>& k)
///   static constexpr bool reads_head
template <class Mask>
struct IntervalMask : TextMask {
  __device__ explicit IntervalMask(const BlockContext& context) : TextMask(context) {}

  JIT_DEVICE Interval<bool> kept(int q_begin, int q_end, int k_begin, int k_end) const {
    return static_cast<const Mask*>(this)->kept_of({q_begin, q_end - 1}, {k_begin, k_end - 1});
  }

  __device__ TileClass classify(const ScoreTile& tile) const {
    const Interval<bool> known = kept(tile.q_begin, tile.q_end, tile.k_begin, tile.k_end);
    return known.low ? TileClass::full : known.high ? TileClass::partial : TileClass::empty;
  }

  /// The next visible tile from key k (a multiple of tile_kv) on and before k_end. By a whole warp, one tile per lane.
  __device__ SeenTile next_tile(int q_begin, int q_end, int k, int k_end, int tile_kv) const {
#pragma unroll 1
    for (; k < k_end; k += warp_size * tile_kv) {
      const int begin = k + lane_id() * tile_kv, end = minimum(begin + tile_kv, seqlen_kv);
      Interval<bool> known(false);
      if (begin < end) known = kept(q_begin, q_end, begin, end);
      const unsigned seen = __ballot_sync(full_warp, known.high), full = __ballot_sync(full_warp, known.low);
      const int first = __ffs(static_cast<int>(seen)) - 1;
      if (seen != 0) return {k + first * tile_kv, (full >> first & 1) != 0};  // mutate: TilesBehindAGap
    }
    return {k_end, false};
  }

  /// Each lane evaluates a piece of the keys, then a piece of the first visible piece, then one of the last. By a whole
  /// warp.
  __device__ KeyRange key_range(int q_begin, int q_end) const {
    if (q_begin >= q_end) return {0, 0};
    KeyRange seen = {0, seqlen_kv}, searched = seen;
    int last = 0;
#pragma unroll 1
    for (int round = 0; round < 3; ++round) {
      const int keys = (searched.end - searched.begin + warp_size - 1) / warp_size;
      const int begin = searched.begin + lane_id() * keys, end = minimum(begin + keys, searched.end);
      const unsigned pieces = __ballot_sync(full_warp, begin < end && kept(q_begin, q_end, begin, end).high);
      const int first = searched.begin + (__ffs(pieces) - 1) * keys;
      const int behind = minimum(searched.begin + (warp_size - __clz(pieces)) * keys, searched.end);
      if (round == 0) {
        if (pieces == 0) return {0, 0};
        seen = {first, behind};
        last = searched.begin + (warp_size - 1 - __clz(pieces)) * keys;
        searched = {first, minimum(first + keys, seen.end)};
      } else if (round == 1) {
        if (pieces != 0) seen.begin = first;
        searched = {last, seen.end};
      } else if (pieces != 0) {
        seen.end = behind;
      }
    }
    return seen;
  }

  /// Cuts keys from both ends, half as many in each iteration. By one lane.
  __device__ KeyRange lane_key_range(int, int q_begin, int q_end) const {
    constexpr int fewest = 32;
    if (q_begin >= q_end) return {0, 0};
    KeyRange seen = {0, seqlen_kv};
#pragma unroll 1
    for (int keys = 0x40000000; keys >= fewest; keys /= 2) {
#pragma unroll 1
      for (int side = 0; side < 2; ++side) {
        if (keys > seen.end - seen.begin) break;
        const int begin = side == 0 ? seen.begin : seen.end - keys;
        if (kept(q_begin, q_end, begin, begin + keys).high) continue;
        if (side == 0) {
          seen.begin += keys;
        } else {
          seen.end -= keys;
        }
      }
    }
    return seen;
  }
};

}  // namespace jit
