// The context of mask and score functors. A functor is built from a BlockContext and then asked per tile and
// per score, so that whatever depends on batch and head only (a slope, a pointer) is read once.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "jit/options.h"

namespace jit {

/// The problem from where one block stands.
struct BlockContext {
  int batch;
  int head;  ///< query head
  int heads_q;
  int seqlen_q;
  int seqlen_kv;
  int q_begin;  ///< row of query 0 in tensors with a row for each query of varlen q; 0 where q is dense
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

/// A tile of keys that is not empty for some queries.
struct SeenTile {
  int k_begin;  ///< at least the end of the keys that were asked for: there is none
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

/// An element by its indices along the dimensions that FunctorTensor::strides are for, and along the last one.
struct TensorPlace {
  long long leading[3];
  long long last;
};

/// The number that a built-in score has read at a place of the tensor in `slot`. Scores hand on what
/// else `apply` was given, which makes other numbers of it (problem/tensor_reads.cuh).
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

/// Base of a mask that is written as text, which adds `keep`, and `classify` where it knows more of a tile.
struct TextMask : TextFunctor {
  __device__ explicit TextMask(const BlockContext& context) : TextFunctor(context) {}
  __device__ KeyRange key_range(int, int) const { return {0, seqlen_kv}; }
  __device__ TileClass classify(const ScoreTile&) const { return TileClass::partial; }
};

/// Base of a score that is written as text, which adds `apply`, of floats or of numbers with a derivative.
struct TextScore : TextFunctor {
  static constexpr bool is_identity = false;
  __device__ explicit TextScore(const BlockContext& context) : TextFunctor(context) {}
};

}  // namespace jit
