// Copies LSE of documents, which a kernel has written as of varlen sequences (heads, rows of all), to batch entries.
#pragma once

#include "base/prelude.cuh"
#include "find_documents/params.cuh"

namespace jit::find_documents {

/// By a grid of (heads, batch). Leaves LSE alone if another kernel computes the call.
JIT_DEVICE void copy_lse(const float* from, float* to, const int* is_dense, long long batch_stride,
                         long long head_stride, long long row_stride, int seqlen) {
  const int head = static_cast<int>(blockIdx.x), entry = static_cast<int>(blockIdx.y);
  if (*is_dense != 0) return;  // mutate: LseOfDocumentsIsCopied
  const float* const own = from + (static_cast<long long>(head) * gridDim.y + entry) * seqlen;
  float* const target = to + entry * batch_stride + head * head_stride;
  for (int i = threadIdx.x; i < seqlen; i += find_documents_threads) target[i * row_stride] = own[i];
}

}  // namespace jit::find_documents
