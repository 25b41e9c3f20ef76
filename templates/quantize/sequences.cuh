// Which rows of a tensor belong to a sequence: all, or of a batch entry the first ones, or of varlen rows some from a
// boundary on. All others are neither read nor written.
#pragma once

#include "base/prelude.cuh"
#include "jit/options.h"
#include "quantize/params.cuh"

namespace jit {

/// The rows of one batch entry, or all varlen ones. Whatever the arrays hold, none is outside of the tensor.
template <SequenceKind kind>
class SequenceRows {
  static_assert(kind != SequenceKind::paged);

 public:
  JIT_DEVICE SequenceRows(const QuantizeTensor& own, int batch)
      : own_(own), length_(kind == SequenceKind::padded ? length(batch, own.seqlen) : 0) {}

  JIT_DEVICE bool has(int token) const {
    if (token >= end()) return false;
    if (!is_varlen()) return true;
    const int sequence = last_from(token);
    // mutate: RowsBeforeTheFirstSequence
    return sequence >= 0 && token - boundary(sequence) < varlen_length(sequence);
  }

  /// How many there are. By whole warps.
  JIT_DEVICE int count() const {
    if (!is_varlen()) return end();
    int rows = 0;
    for (int sequence = lane_id(); sequence < own_.sequences; sequence += warp_size)
      rows += varlen_length(sequence);
#pragma unroll
    for (int offset = warp_size / 2; offset > 0; offset /= 2)  // mutate: RowsOfOneLaneAreCounted
      rows += __shfl_xor_sync(full_warp, rows, offset);
    return rows;
  }

 private:
  JIT_DEVICE bool is_varlen() const { return kind == SequenceKind::varlen && own_.cu_seqlens != nullptr; }
  /// The end of all rows is read where it is asked for, which costs no register.
  // mutate: AllRowsAreASequences
  JIT_DEVICE int end() const { return kind == SequenceKind::padded ? length_ : own_.seqlen; }
  JIT_DEVICE int cut(int x, int most) const { return maximum(0, minimum(x, most)); }
  JIT_DEVICE int boundary(int i) const { return cut(own_.cu_seqlens[i], own_.seqlen); }
  /// The length of a sequence that has room for so many.
  JIT_DEVICE int length(int sequence, int room) const {
    return own_.seqused != nullptr ? cut(own_.seqused[sequence], room) : room;  // mutate: Lengths
  }
  JIT_DEVICE int varlen_length(int sequence) const {
    return length(sequence, maximum(0, boundary(sequence + 1) - boundary(sequence)));
  }

  /// The last sequence that begins at or before `token`; −1 when none does.
  JIT_DEVICE int last_from(int token) const {
    int before = 0, end = own_.sequences;
    while (before < end) {
      const int middle = before + (end - before) / 2;
      if (boundary(middle) <= token) {  // mutate: ASequenceBeginsLate
        before = middle + 1;
      } else {
        end = middle;
      }
    }
    return before - 1;  // mutate: TheSequenceBefore
  }

  const QuantizeTensor& own_;
  int length_;  // padded
};

}  // namespace jit
