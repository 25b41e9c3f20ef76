// Parameters of a merge of partial attention states. Compiled by the host and by NVRTC.
#pragma once

#include "base/divisor.cuh"
#include "base/params.cuh"

namespace jit {

/// The most views of partial states that a kernel takes: its parameters stay below 4 KB.
inline constexpr int max_merge_views = 32;

/// Partial states at equal distances.
struct MergeView {
  const void* o;     ///< (states, batch, seqlen, heads, head_dim_v)
  const float* lse;  ///< (states, batch, heads, seqlen), natural log
  long long o_state_stride;
  long long lse_state_stride;
  TensorStrides o_strides;
  TensorStrides lse_strides;
  long long states;
};

/// The host fills one for max_merge_views; a kernel reads as much as its own has.
template <int views>
struct MergeParams {
  void* o;     ///< (batch, seqlen, heads, head_dim_v)
  float* lse;  ///< (batch, heads, seqlen); may be null
  TensorStrides o_strides;
  TensorStrides lse_strides;
  unsigned rows;    ///< batch · seqlen · heads
  unsigned states;  ///< of all views
  Divisor seqlen;
  Divisor heads;
  MergeView view[views];
};

/// Parameters of a merge of two states whose rows of o, and those of the result, lie at equal distances.
struct MergePairParams {
  void* o;
  float* lse;  ///< may be null
  const void* state_o[2];
  const float* state_lse[2];
  long long o_row_stride;        ///< elements from row to row
  long long state_o_row_stride;  ///< of both states
  TensorStrides lse_strides;
  TensorStrides state_lse_strides;  ///< of both states
  unsigned rows;
  Divisor seqlen;
  Divisor heads;
};

}  // namespace jit
