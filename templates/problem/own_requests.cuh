// The requests of a call that a kernel computes: all, or its share of them where another kernel has the others.
#pragma once

#include "base/prelude.cuh"
#include "jit/options.h"
#include "problem/sequences.cuh"
#include "problem/variable_sequences.cuh"
#include "scheduling/request_kinds.cuh"

namespace jit {

/// The requests of a Config; all where it does not say.
template <class Config>
constexpr Requests requests_of() {
  if constexpr (requires { Config::requests; }) return Config::requests;
  return Requests::all;
}

/// The queries of a batch entry; none where they are another kernel's.
template <class Config>
__device__ __forceinline__ Sequence own_queries(const VariableSequences<Config>& sequences, int batch) {
  if constexpr (requests_of<Config>() == Requests::all) {
    return sequences.q(batch);
  } else {
    Sequence q = sequences.q(batch);
    if (!computes(requests_of<Config>(), q.length)) q.length = 0;
    return q;
  }
}

}  // namespace jit
