// The context of mask and score functors. A functor is constructed from a BlockContext and then called per tile and per
// score, so that what depends only on batch and head (a slope, a pointer) is read once.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "jit/options.h"

namespace jit {

/// Batch entry, head and lengths for which functors are constructed.
struct BlockContext {
  int batch;
  int head;  ///< query head
  int heads_q;
  int seqlen_q;
  int seqlen_kv;
  int q_begin;  ///< row of query 0 in tensors with a row per query of varlen q; 0 if q is dense
  const FunctorTensor* tensors;
};

/// Scores of queries [q_begin, q_end) and keys [k_begin, k_end), all inside the sequences.
struct ScoreTile {
  int q_begin;
  int q_end;
  int k_begin;
  int k_end;
};

/// Half-open range of keys.
struct KeyRange {
  int begin;
  int end;
};

/// The next visible tile of keys.
struct SeenTile {
  int k_begin;  ///< first key; from the end of the searched keys on: no tile
  bool is_full;
};

template <Alignment alignment>
JIT_DEVICE int query_shift(const BlockContext& context) {
  return alignment == Alignment::bottom_right ? context.seqlen_kv - context.seqlen_q : 0;
}

template <class T>
JIT_DEVICE const T* tensor_data(const BlockContext& context, int slot) {
  return static_cast<const T*>(context.tensors[slot].data);
}

/// The indices of an element along the leading dimensions (FunctorTensor::strides) and the last one.
struct TensorPlace {
  long long leading[3];
  long long last;
};

/// A number that a built-in score has read from the tensor in `slot`. Scores pass on further arguments of `apply`,
/// which select another overload (problem/tensor_reads.cuh).
template <int slot>
JIT_DEVICE float tensor_number(float value, const TensorPlace&) {
  return value;
}

/// As in C: what a score's text returns for a key that is not seen is -INFINITY.
inline constexpr float INFINITY = __builtin_bit_cast(float, 0x7f800000);

/// Names that the text of a functor may use beside its own constants and tensors.
struct TextFunctor {
  int b;  ///< batch entry
  int h;  ///< query head
  int heads_q;
  int seqlen_q;
  int seqlen_kv;
  __device__ explicit TextFunctor(const BlockContext& context)
      : b(context.batch),
        h(context.head),
        heads_q(context.heads_q),
        seqlen_q(context.seqlen_q),
        seqlen_kv(context.seqlen_kv) {}
};

/// Base of a text mask, which adds `keep`, and `classify` if it can classify tiles.
struct TextMask : TextFunctor {
  __device__ explicit TextMask(const BlockContext& context) : TextFunctor(context) {}
  __device__ KeyRange key_range(int, int) const { return {0, seqlen_kv}; }
  __device__ TileClass classify(const ScoreTile&) const { return TileClass::partial; }
};

/// Base of a text score, which adds `apply`, for floats and for Dual numbers.
struct TextScore : TextFunctor {
  static constexpr bool is_identity = false;
  __device__ explicit TextScore(const BlockContext& context) : TextFunctor(context) {}
};

}  // namespace jit
