// A mask evaluated for one row.
#pragma once

#include "base/prelude.cuh"
#include "problem/functor.cuh"
#include "problem/masks.cuh"

namespace jit {

/// The mask of one row: whether its query sees a key. Constructed once for the keys of a tile.
template <class Mask>
class RowMask {
 public:
  JIT_DEVICE RowMask(const BlockContext& context, int query)
      : mask_(context), query_(query), seqlen_kv_(context.seqlen_kv) {
    if constexpr (has_row_range<Mask>) range_ = mask_.row_range(query);
  }

  JIT_DEVICE bool keeps(int key) const {
    if constexpr (has_row_range<Mask>) {
      return key >= range_.begin && key < range_.end;
    } else {
      return key < seqlen_kv_ && mask_.keep(query_, key);
    }
  }

 private:
  Mask mask_;
  int query_;
  int seqlen_kv_;
  KeyRange range_;
};

}  // namespace jit
