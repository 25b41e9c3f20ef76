// What a block touches first, before it is waited for. A call that takes a few microseconds begins with a cold cache: each
// line of its parameters and each page of its memory that is met one after another is a trip of its own.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "base/touch_lines.cuh"
#include "ptx/prefetch.cuh"
#include "split_keys/split_params.cuh"

namespace jit {

/// By one thread that has nothing else to do meanwhile.
__device__ __forceinline__ void touch_first(const AttentionParams& params, const SplitParams& split) {
  touch_lines(params);
  const SequenceParams& given = params.sequences;
  const void* const places[] = {given.cu_seqlens_q, given.seqused_k, given.page_table, params.q,
                                params.k,           params.v,        split.partials,   params.o};
#pragma unroll
  for (const void* const place : places) prefetch_l2(place);
}

}  // namespace jit
