// Checks the ends of subtrees that the mask `tree` reads: each must lie behind its key, within the sequence, and not
// behind the end of a subtree that contains the key. Attention kernels take any ends and report nothing.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "problem/entry_sequences.cuh"
#include "problem/functor.cuh"
#include "problem/masks.cuh"
#include "problem/scores.cuh"
#include "problem/variable_sequences.cuh"

namespace jit {

/// The slot of the ends that a mask reads; −1: none.
template <class Mask>
inline constexpr int slot_of_ends = -1;
template <int slot>
inline constexpr int slot_of_ends<TreeMask<slot>> = slot;
template <class Op, class A, class B>
inline constexpr int slot_of_ends<CombinedMask<Op, A, B>> = maximum(slot_of_ends<A>, slot_of_ends<B>);
template <class A>
inline constexpr int slot_of_ends<NotMask<A>> = slot_of_ends<A>;
template <template <class, int...> class Blocks, class Within, int... numbers>
inline constexpr int slot_of_ends<Blocks<Within, numbers...>> = slot_of_ends<Within>;

/// By a block for each batch entry, which records the first key whose end is wrong. A thread goes over the children of a
/// key, each of which begins where the one before it ends, and not beyond a wrong one: ends before that are of a tree,
/// and all threads together read each of them twice, whatever follows.
template <class Config>
JIT_DEVICE void check_tree(const AttentionParams& params, ArrayFault* fault) {
  __shared__ int first_wrong;
  const int batch = static_cast<int>(blockIdx.x), none = 0x7fffffff;
  if (threadIdx.x == 0) first_wrong = none;
  __syncthreads();  // mutate: FirstWrongEndLater
  const AllSequences<Config> sequences(params);
  const auto queries = sequences.q(batch), keys = sequences.kv(batch);
  const TreeMask<slot_of_ends<typename Config::Mask>> tree(
      {batch, 0, params.heads_q, queries.length, keys.length, queries.begin, params.tensors});
  const auto first = [&] { return atomicMin(&first_wrong, none); };
  ArrayFault found{};
  // The sequence itself is one more key, before all others.
#pragma unroll 1
  for (int k = static_cast<int>(threadIdx.x) - 1; k < minimum(keys.length, first());
       k += static_cast<int>(blockDim.x)) {
    const int end = k < 0 ? keys.length : tree.key_word(k);
    if (end <= k || end > keys.length) continue;  // its parent says so
#pragma unroll 1
    for (int child = k + 1; child < minimum(end, first());) {
      const int of_child = tree.key_word(child);
      if (of_child <= child || of_child > end) {  // mutate: SubtreesMayCross
        if (atomicMin(&first_wrong, child) > child)
          found = {SequenceArrayId::tree_ends, batch, child, of_child, child + 1, end};
        break;
      }
      child = of_child;
    }
  }
  __syncthreads();  // mutate: FirstWrongEndSoFar
  if (found.array != SequenceArrayId::none && found.index == first_wrong) record_fault(fault, found);
}

}  // namespace jit
