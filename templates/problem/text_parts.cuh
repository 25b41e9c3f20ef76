// Helpers of the functions that the generator writes for parts of a mask's text; their numbers are those of
// problem/exact.cuh.
#pragma once

#include "base/prelude.cuh"
#include "problem/exact.cuh"
#include "problem/functor.cuh"

namespace jit {

/// An element of a tensor; 0 if the text does not read it.
template <class T, class Element>
JIT_DEVICE Exact<T> element(const Exact<bool>& reads, const Exact<long long>& index, const Element* tensor) {
  return reads.value ? static_cast<T>(tensor[index.value]) : T(0);  // mutate: ElementsThatAreNotRead
}

/// The keys of [begin, end) that exist; bounds may lie outside of the sequence.
JIT_DEVICE KeyRange existing_keys(Exact<long long> begin, Exact<long long> end, int seqlen_kv) {
  constexpr long long most_keys = 0x7fffffff;
  return {static_cast<int>(maximum(0ll, minimum(most_keys, begin.value))),  // mutate: RowsBegin
          // mutate: RowsEndBehindTheSequence
          static_cast<int>(maximum(0ll, minimum<long long>(seqlen_kv, end.value)))};
}

}  // namespace jit
