// Tiles of packed rows: rows of several query heads.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "problem/functor.cuh"
#include "problem/variable_sequences.cuh"
#include "split_keys/split_info.cuh"

namespace jit {

/// A packed row: rows are those of all query heads of a KV head, query by query, so that each key is read once for all
/// of them.
template <class Config>
struct PackedRow {
  int query;
  int head;  ///< query head

  JIT_DEVICE PackedRow(int kv_head, int row)
      : query(row / Config::gqa_ratio), head(kv_head * Config::gqa_ratio + row % Config::gqa_ratio) {}
};

/// The context of functors for a packed row.
template <class Config>
JIT_DEVICE BlockContext packed_context(const AttentionParams& params, const SplitInfo& split,
                                       const PackedRow<Config>& place) {
  // mutate: GatesOfAnotherPackedHead
  return {split.batch,     place.head,    params.heads_q, split.q.length,
          split.kv.length, split.q.begin, params.tensors};
}

/// Addresses of packed rows of q; null for a row that does not exist.
template <class Config>
struct QueryRows {
  using Element = typename Config::Element;
  const Element* first;  ///< of the sequence, KV head 0
  TensorStrides strides;
  int kv_head;
  int row_begin;
  int row_end;

  JIT_DEVICE QueryRows(const AttentionParams& params, const SplitInfo& split)
      : strides(params.q_strides),
        kv_head(split.kv_head),
        row_begin(split.row_begin),
        row_end(split.q.length * Config::gqa_ratio) {
    first = static_cast<const Element*>(params.q) +
            VariableSequences<Config>::query_offset(strides, split.batch, 0, split.q.begin);
  }

  JIT_DEVICE const Element* operator()(int row) const {
    const PackedRow<Config> place(kv_head, row_begin + row);
    return row_begin + row < row_end ? first + place.query * strides.seq + place.head * strides.head
                                     : nullptr;
  }
};

}  // namespace jit
