// Where the rows lie of sequences that differ in length, dense, ragged or paged, and how long they are: nothing else
// on the device knows.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "jit/options.h"
#include "problem/sequences.cuh"

namespace jit {

/// Sequences of a batch as SequenceParams describes them. Boundaries and lengths are cut to what there is room for.
template <class Config>
class VariableSequences {
  using Element = typename Config::Element;

 public:
  __device__ __forceinline__ explicit VariableSequences(const AttentionParams& params) : params_(params) {}

  /// The queries of a batch entry. Rows count from its own place in dense tensors, from the first of all in ragged
  /// ones.
  __device__ __forceinline__ Sequence q(int batch) const {
    const SequenceParams& given = params_.sequences;
    Sequence rows{0, Config::seqlen_q != 0 ? Config::seqlen_q : params_.seqlen_q};
    if constexpr (Config::sequences_q == SequenceKind::ragged)
      rows = between(given.cu_seqlens_q + batch, given.total_q);
    if (given.seqused_q != nullptr) rows.length = within(given.seqused_q[batch], rows.length);
    return rows;
  }

  /// Its keys. In pages, rows count from the first of the sequence's own.
  __device__ __forceinline__ Sequence kv(int batch) const {
    const SequenceParams& given = params_.sequences;
    Sequence rows{0, Config::seqlen_kv != 0 ? Config::seqlen_kv : params_.seqlen_kv};
    if constexpr (Config::sequences_kv == SequenceKind::ragged)
      rows = between(given.cu_seqlens_k + batch, given.total_k);
    if (given.seqused_k != nullptr) rows.length = within(given.seqused_k[batch], rows.length);
    if (given.cache_leftpad != nullptr) {
      const int pad = within(given.cache_leftpad[batch], rows.length);
      rows.begin += pad;
      rows.length -= pad;
    }
    return rows;
  }

  /// The page of row `row` of those that `kv` counts, which may be any number; 0 where there are no pages.
  __device__ __forceinline__ int page(int batch, int row) const {
    if constexpr (Config::sequences_kv == SequenceKind::paged) {
      const SequenceParams& given = params_.sequences;
      return given.page_table[batch * given.page_table_stride + row / Config::page_size];
    }
    return 0;
  }

  /// Elements from the first of k, or v, whose `strides` these are, to that row of a KV head; −1: it does not exist.
  __device__ __forceinline__ long long kv_offset(const TensorStrides& strides, int batch, int kv_head, int row,
                                                 int page) const {
    const long long head = kv_head * strides.head;
    if constexpr (Config::sequences_kv == SequenceKind::paged) {
      if (page < 0 || page >= params_.sequences.pages) return -1;
      return page * strides.batch + row % Config::page_size * strides.seq + head;
    }
    return batch * strides.batch + row * strides.seq + head;
  }

  /// Elements from the first of q, o or LSE, whose `strides` these are, to that row of a query head.
  static __device__ __forceinline__ long long query_offset(const TensorStrides& strides, int batch, int head,
                                                           int row) {
    return batch * strides.batch + row * strides.seq + head * strides.head;
  }

 private:
  static __device__ __forceinline__ int within(int value, int most) {
    return maximum(0, minimum(value, most));
  }
  static __device__ __forceinline__ Sequence between(const int* boundaries, int total) {
    const int begin = within(boundaries[0], total), end = within(boundaries[1], total);
    return {begin, maximum(0, end - begin)};
  }

  const AttentionParams& params_;
};

}  // namespace jit
