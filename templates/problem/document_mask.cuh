// The mask of documents by ids, and ranges of words such as ids.
#pragma once

#include "base/prelude.cuh"
#include "problem/functor.cuh"
#include "ptx/cache_hints.cuh"

namespace jit {

/// The least and the greatest of some words.
struct alignas(8) WordRange {
  int low;
  int high;
};

JIT_DEVICE bool meet(const WordRange& x, const WordRange& y) { return x.high >= y.low && y.high >= x.low; }

/// The range of word(i) for i in [begin, end); begin < end. By a whole warp. From the end on it loads the last word
/// again: unconditional loads are in flight together. Not unrolled further, because copies of this loop would be much
/// of the kernel.
template <class Word>
JIT_DEVICE WordRange word_range(int begin, int end, const Word& word) {
  constexpr int loads = 4;
  int low = 0x7fffffff;
  int high = -low - 1;
#pragma unroll 1
  for (int i = begin + lane_id(); i < end + lane_id(); i += loads * warp_size) {
#pragma unroll
    for (int load = 0; load < loads; ++load) {
      const int x = word(minimum(i + load * warp_size, end - 1));
      low = minimum(low, x);
      high = maximum(high, x);
    }
  }
  return {__reduce_min_sync(full_warp, low), __reduce_max_sync(full_warp, high)};
}

/// A query sees the keys of its own document: int32 tensors of ids (batch, seqlen_q) and (batch, seqlen_kv).
/// Ids may come in any order; tiles are skipped where the ranges of ids do not meet.
template <int slot_q, int slot_kv>
struct DocumentMask {
  const int* ids_q;
  const int* ids_kv;
  int seqlen_kv;
  __device__ explicit DocumentMask(const BlockContext& context)
      : ids_q(tensor_data<int>(context, slot_q) + context.batch * context.tensors[slot_q].strides[0]),
        ids_kv(tensor_data<int>(context, slot_kv) + context.batch * context.tensors[slot_kv].strides[0]),
        seqlen_kv(context.seqlen_kv) {}

  static __device__ WordRange id_range(const int* ids, int begin, int end) {
    return word_range(begin, end, [&](int i) { return __ldg(ids + i); });
  }

  /// From the first to the last key whose id lies in the queries' range.
  __device__ KeyRange keys_of(const WordRange& queries) const {
    constexpr int loads = 8;  // in flight; the producers of wgmma kernels have registers for no more
    int first = seqlen_kv;
    int last = -1;
#pragma unroll 1
    for (int i = lane_id(); i < seqlen_kv + lane_id(); i += loads * warp_size) {
      int ids[loads];
#pragma unroll
      for (int load = 0; load < loads; ++load)
        ids[load] = __ldg(ids_kv + minimum(i + load * warp_size, seqlen_kv - 1));
#pragma unroll
      for (int load = 0; load < loads; ++load) {
        const int k = minimum(i + load * warp_size, seqlen_kv - 1);
        if (ids[load] >= queries.low && ids[load] <= queries.high) {
          first = minimum(first, k);
          last = maximum(last, k);
        }
      }
    }
    const KeyRange range = {__reduce_min_sync(full_warp, first), __reduce_max_sync(full_warp, last) + 1};
    return range.begin < range.end ? range : KeyRange{0, 0};
  }

  // One pass over the ids is cheaper than a look at each tile.
  __device__ KeyRange key_range(int q_begin, int q_end) const {
    if (q_begin >= q_end || seqlen_kv == 0) return {0, 0};
    return keys_of(id_range(ids_q, q_begin, q_end));
  }
  __device__ TileClass classify(const ScoreTile& tile) const {
    return classify(id_range(ids_q, tile.q_begin, tile.q_end), id_range(ids_kv, tile.k_begin, tile.k_end));
  }
  static __device__ TileClass classify(const WordRange& q, const WordRange& k) {
    if (!meet(q, k)) return TileClass::empty;
    if (q.low == q.high && k.low == k.high) return TileClass::full;
    return TileClass::partial;
  }
  static constexpr bool needs_warp = true;
  __device__ bool keep(int q, int k) const { return __ldg(ids_q + q) == __ldg(ids_kv + k); }
  __device__ void touch(int q_begin, int q_end) const {
    constexpr int line = 32;
    prefetch_l1(ids_q + minimum(q_begin + lane_id() * line, q_end - 1));
  }
  static constexpr int key_words = 1;
  static constexpr bool keeps_by_words = true;
  __device__ int key_word(int k) const { return __ldg(ids_kv + k); }
  __device__ int query_term(int q) const { return __ldg(ids_q + q); }
  __device__ bool keeps(int id_q, int, int id_kv) const { return id_q == id_kv; }
};

}  // namespace jit
