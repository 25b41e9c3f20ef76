// Text masks whose text implies that every query sees contiguous keys.
#pragma once

#include "base/prelude.cuh"
#include "problem/functor.cuh"
#include "problem/interval_mask.cuh"
#include "problem/text_parts.cuh"

namespace jit {

/// Base of `Mask`, which adds, beside what IntervalMask wants, the first key that a query sees and the one behind the
/// last, as if there were keys without end, before the sequence, too:
///   Exact<long long> row_begin(int q)
///   Exact<long long> row_end(int q)
///   static constexpr bool rows_begin_first
template <class Mask>
struct RowRangeMask : IntervalMask<Mask> {
  __device__ explicit RowRangeMask(const BlockContext& context) : IntervalMask<Mask>(context) {}

  __device__ KeyRange row_range(int q) const {
    const Mask& mask = *static_cast<const Mask*>(this);
    return existing_keys(mask.row_begin(q), mask.row_end(q), this->seqlen_kv);
  }

  /// Evaluates each row. By a whole warp.
  __device__ KeyRange key_range(int q_begin, int q_end) const {
    int begin = this->seqlen_kv, end = 0;
#pragma unroll 1
    for (int q = q_begin + lane_id(); q < q_end; q += warp_size) {  // mutate: KeysOfTheFirstRowsOfAll
      const KeyRange row = row_range(q);
      if (row.begin >= row.end) continue;  // mutate: EmptyRowsCount
      begin = minimum(begin, row.begin);   // mutate: KeysFromTheLastBegin
      end = maximum(end, row.end);
    }
    return {__reduce_min_sync(full_warp, begin), __reduce_max_sync(full_warp, end)};
  }
};

}  // namespace jit
