// What mask and score functors see. A functor is built from a BlockContext and then asked per tile and per
// score, so that whatever depends on batch and head only (a slope, a pointer) is read once.
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
  const FunctorTensor* tensors;
};

/// Scores of queries [q_begin, q_end) and keys [k_begin, k_end), all inside the sequences.
struct ScoreTile {
  int q_begin;
  int q_end;
  int k_begin;
  int k_end;
};

/// What a mask leaves of a tile: nothing (the tile is skipped), all (no mask code runs), or some.
enum class TileClass { empty, partial, full };

/// Half-open range of keys.
struct KeyRange {
  int begin;
  int end;
};

template <Alignment alignment>
__device__ __forceinline__ int query_shift(const BlockContext& context) {
  return alignment == Alignment::bottom_right ? context.seqlen_kv - context.seqlen_q : 0;
}

template <class T>
__device__ __forceinline__ const T* tensor_data(const BlockContext& context, int slot) {
  return static_cast<const T*>(context.tensors[slot].data);
}

}  // namespace jit
