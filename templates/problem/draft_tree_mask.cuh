// The mask of speculative decoding: queries are tokens of a draft tree, each of which sees some of the others.
#pragma once

#include "base/bit_words.cuh"
#include "base/params.cuh"
#include "base/prelude.cuh"
#include "problem/functor.cuh"

namespace jit {

/// A query sees all keys before the draft, and of the last seqlen_q keys, which are the draft's own, those whose bits
/// are set: bit j % 32 of word j / 32 is key j of the draft's. int32 tensor ([batch,] seqlen_q, words) in slot `slot`;
/// where q is varlen (total_q, words), a row for each row of q. A draft of more queries than a row has bits is causal:
/// such are chunks of prefill beside drafts. `key_range` and `classify` are asked by whole warps.
template <int slot>
struct DraftTreeMask {
  const int* rows;  ///< of the first query
  long long row_stride;
  int first_own;  ///< first key of the draft
  int seqlen_q;
  bool is_causal;

  __device__ explicit DraftTreeMask(const BlockContext& context)
      : first_own(context.seqlen_kv - context.seqlen_q), seqlen_q(context.seqlen_q) {
    const FunctorTensor& tensor = context.tensors[slot];
    row_stride = tensor.strides[1];
    // mutate: BitsOfTheFirstBatchEntry
    rows = static_cast<const int*>(tensor.data) + context.batch * tensor.strides[0] +
           context.q_begin * row_stride;
    is_causal = seqlen_q > static_cast<long long>(bits_of_word) * tensor.last_size;
  }

  __device__ unsigned word(int q, int i) const { return __ldg(rows + q * row_stride + i); }

  /// To the last key that one of the queries may see.
  __device__ KeyRange lane_key_range(int seqlen_kv, int, int q_end) const {
    return {0, is_causal ? maximum(0, first_own + q_end) : seqlen_kv};
  }

  /// To the last key that one of the queries sees.
  __device__ KeyRange key_range(int q_begin, int q_end) const {
    if (q_begin >= q_end) return {0, 0};
    if (is_causal) return {0, maximum(0, first_own + q_end)};
#pragma unroll 1
    for (int i = (seqlen_q - 1) / bits_of_word; i >= 0; --i) {
      unsigned seen = 0;
#pragma unroll 1
      for (int q = q_begin + lane_id(); q < q_end; q += warp_size) seen |= word(q, i);
      seen = __reduce_or_sync(full_warp, seen & bits_between(i, 0, seqlen_q));
      if (seen != 0)
        // mutate: RangeEndsAWordEarly
        return {0, maximum(0, first_own + (i + 1) * bits_of_word - __clz(static_cast<int>(seen)))};
    }
    return {0, maximum(0, first_own)};
  }

  __device__ TileClass classify(const ScoreTile& tile) const {
    const bool has_others = tile.k_begin < first_own;
    const int begin = has_others ? 0 : tile.k_begin - first_own, end = tile.k_end - first_own;
    if (end <= 0) return TileClass::full;
    if (is_causal) {
      if (end - 1 <= tile.q_begin) return TileClass::full;
      return begin > tile.q_end - 1 && !has_others ? TileClass::empty : TileClass::partial;
    }
    unsigned seen = 0, unseen = 0;
#pragma unroll 1
    for (int i = begin / bits_of_word; i * bits_of_word < end; ++i) {
      const unsigned asked = bits_between(i, begin, end);
#pragma unroll 1
      for (int q = tile.q_begin + lane_id(); q < tile.q_end; q += warp_size) {
        const unsigned bits = word(q, i);
        seen |= bits & asked;
        unseen |= ~bits & asked;  // mutate: FullWhereOneQuerySeesAll
      }
    }
    if (__reduce_or_sync(full_warp, unseen) == 0) return TileClass::full;
    // mutate: EmptyThoughOthersAreSeen
    return __reduce_or_sync(full_warp, seen) == 0 && !has_others ? TileClass::empty : TileClass::partial;
  }

  static constexpr bool needs_warp = true;

  __device__ bool keep(int q, int k) const {
    const int own = k - first_own;  // mutate: BitsOfTheKeyBefore
    if (own < 0) return true;
    return is_causal ? own <= q : (word(q, own / bits_of_word) >> own % bits_of_word & 1) != 0;
  }
};

}  // namespace jit
