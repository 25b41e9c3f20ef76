// The second parameter of backward kernels: the gradients of a call, and the workspace through which its kernels communicate.
// The first is AttentionParams, whose o and lse they read. Host and NVRTC compile this file.
#pragma once

#include "base/host_device.cuh"
#include "base/params.cuh"
#include "base/varlen_tiles.cuh"

namespace jit {

/// Statistics of queries are padded to multiples of this number: chunks of 16 bytes.
inline constexpr int statistic_chunk = 4;

/// The number of queries of a head in GradientParams' statistics, after padding.
JIT_HOST_DEVICE constexpr long long statistic_rows(int seqlen_q) {
  return (static_cast<long long>(seqlen_q) + statistic_chunk - 1) / statistic_chunk * statistic_chunk;
}

/// The number of queries of all varlen sequences in the statistics, and the first one of a sequence.
JIT_HOST_DEVICE constexpr long long varlen_statistic_rows(int batch, int total_q) {
  return varlen_tiles(batch, total_q, statistic_chunk) * statistic_chunk;
}
JIT_HOST_DEVICE constexpr long long first_varlen_statistic(int batch, int begin) {
  return first_varlen_tile(batch, begin, statistic_chunk) * statistic_chunk;
}

/// The gradient of a tensor that scores read, of the same type. Sizes and strides are those of its dimensions, preceded
/// by sizes of 1 if it has fewer than four.
struct TensorGradient {
  void* data;  ///< written; null: not requested
  long long sizes[4];
  long long strides[4];
  /// Strides along the dimensions of FunctorTensor::strides, as if the tensor were dense; 0: broadcast.
  long long element_strides[3];
};

/// A large row's probabilities are 2^((score − max) · factor − lse_log2).
struct RowOrigin {
  float max;       ///< the largest score of a key that the query sees
  float lse_log2;  ///< log2 Σ 2^((score − max) · factor), including a sink; +inf: not a large row
};

struct GradientParams {
  const void* d_o;  ///< the gradient of o: (batch, seqlen_q, heads_q, head_dim_v)
  void* dq;         ///< as q, written
  void* dk;         ///< as k, written
  void* dv;         ///< as v, written
  TensorStrides do_strides;
  TensorStrides dq_strides;
  TensorStrides dk_strides;
  TensorStrides dv_strides;
  /// Statistics of each query, (batch, heads_q, statistic_rows), or (heads_q, varlen_statistic_rows): log2 Σ
  /// exp(score), +inf for one without keys, and do · o − dlse. Written by the kernel of dq, read by that of
  /// dk and dv.
  float* lse_log2;
  float* delta;
  /// The least and the greatest word of each tile of queries of a one-pass kernel, if its mask reads words of queries
  /// (problem/key_memory.cuh).
  int* query_ranges;
  float* dq_sums;  ///< of a one-pass kernel: dQ in fp32 (backward/dq_sums.cuh); it pads LSE and delta further
  int k_tile_begin;           ///< first tile of keys of this launch, as the grid size is limited
  unsigned large_row_blocks;  ///< blocks of all launches of the last kernel, which read `large_rows`
  const float* d_lse;         ///< the gradient of lse, as lse; null: 0
  TensorStrides d_lse_strides;
  float* d_sinks;                               ///< (heads_q), written; null: not requested
  TensorGradient tensors[max_functor_tensors];  ///< in the order of AttentionParams::tensors
  /// Origins of the large rows among queries whose lse_log2 is +inf (steps/large_rows.cuh).
  RowOrigin* origins;
  /// Two counters, 0 between calls: whether a large row sees keys, and the number of blocks that have added large rows.
  unsigned* large_rows;
};

/// Behind LSE and delta, and as long: where a one-pass kernel's spec has means of scores, the gradient of each query's mean
/// times ln 2, and, as delta, times the share that dropout keeps. Its delta lacks that gradient times LSE.
JIT_HOST_DEVICE inline float* mean_statistics(const GradientParams& gradients) {
  return gradients.delta + (gradients.delta - gradients.lse_log2);
}

/// The gradient of o before an output functor, rounded to the type of q: dense rows, which later kernels read as d_o.
struct RawGradient {
  void* data;
  TensorStrides strides;
};

}  // namespace jit
