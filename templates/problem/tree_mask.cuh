// The mask of a tree of sequences with shared prefixes, packed depth first.
#pragma once

#include "base/prelude.cuh"
#include "problem/document_mask.cuh"
#include "problem/functor.cuh"

namespace jit {

/// A query sees the keys up to its own position whose subtrees reach beyond it. The int32 tensor (batch, seqlen_kv), or
/// with a row per row of varlen k, holds the ends of keys' subtrees. Ends may be any numbers: they are only compared.
template <int slot>
struct TreeMask {
  const int* ends;
  int shift;
  int seqlen_kv;
  __device__ explicit TreeMask(const BlockContext& context)
      : ends(tensor_data<int>(context, slot) + first_row(context)),
        shift(query_shift<Alignment::bottom_right>(context)),
        seqlen_kv(context.seqlen_kv) {}

  /// Rows before those of the sequence. For varlen k the host stores the address of cu_seqlens_k in place of a stride.
  static __device__ long long first_row(const BlockContext& context) {
    const FunctorTensor& tensor = context.tensors[slot];
    const int* const boundaries = reinterpret_cast<const int*>(tensor.strides[1]);
    if (boundaries == nullptr) return context.batch * tensor.strides[0];  // mutate: EndsOfTheFirstSequence
    return maximum(0, minimum(boundaries[context.batch], tensor.last_size));
  }

  /// Positions of queries [begin, end).
  __device__ WordRange positions(int begin, int end) const { return {begin + shift, end - 1 + shift}; }
  __device__ WordRange end_range(int begin, int end) const {
    return word_range(begin, end, [&](int k) { return __ldg(ends + k); });
  }
  /// The end of the keys that queries at these positions may see.
  __device__ int last_end(const WordRange& queries) const {
    return maximum(0, minimum(seqlen_kv, queries.high + 1));
  }

  __device__ KeyRange lane_key_range(int, int, int q_end) const {
    return {0, maximum(0, minimum(seqlen_kv, q_end + shift))};
  }

  /// From the first to the last key whose end lies behind the first query.
  __device__ KeyRange key_range(int q_begin, int q_end) const {
    if (q_begin >= q_end) return {0, 0};
    constexpr int loads = 8;  // in flight; the producers of wgmma kernels have registers for no more
    const WordRange queries = positions(q_begin, q_end);
    const int end = last_end(queries);
    int first = end;
    int last = -1;
#pragma unroll 1
    for (int i = lane_id(); i < end + lane_id(); i += loads * warp_size) {
      int words[loads];
#pragma unroll
      for (int load = 0; load < loads; ++load)
        words[load] = __ldg(ends + minimum(i + load * warp_size, end - 1));
#pragma unroll
      for (int load = 0; load < loads; ++load) {
        const int k = minimum(i + load * warp_size, end - 1);
        if (words[load] > queries.low) {
          first = minimum(first, k);
          last = maximum(last, k);
        }
      }
    }
    const KeyRange range = {__reduce_min_sync(full_warp, first), __reduce_max_sync(full_warp, last) + 1};
    return range.begin < range.end ? range : KeyRange{0, 0};
  }

  __device__ TileClass classify(const ScoreTile& tile) const {
    return classify(tile, end_range(tile.k_begin, tile.k_end));
  }
  /// The class of a tile, given a range that contains the ends of its keys' subtrees.
  __device__ TileClass classify(const ScoreTile& tile, const WordRange& of_keys) const {
    const WordRange queries = positions(tile.q_begin, tile.q_end);
    // mutate: SubtreesEndWithTheTile
    if (tile.k_begin > queries.high || of_keys.high <= queries.low) return TileClass::empty;
    // mutate: FullThoughASubtreeEnds
    return tile.k_end - 1 <= queries.low && of_keys.low > queries.high ? TileClass::full : TileClass::partial;
  }
  static constexpr bool needs_warp = true;

  __device__ bool keep(int q, int k) const { return keeps(query_term(q), k, key_word(k)); }
  static constexpr int key_words = 1;
  __device__ int key_word(int k) const { return __ldg(ends + k); }
  __device__ int query_term(int q) const { return q + shift; }
  __device__ bool keeps(int position, int k, int end) const {
    return (k <= position) & (position < end);  // mutate: SubtreesSeeTheNextOne
  }
};

}  // namespace jit
