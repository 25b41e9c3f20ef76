// The kernel's run-time arguments: one struct, compiled by the host and by NVRTC, passed by value; wgmma
// kernels have a second parameter (forward_wgmma/tensor_maps.cuh). Everything that the program knew when the
// kernel was written is in Config instead.
#pragma once

namespace jit {

/// Strides of a (batch, seqlen, heads, head_dim) tensor in elements; the stride of head_dim is 1.
struct TensorStrides {
  long long batch;
  long long seq;
  long long head;
};

/// A tensor that a mask or score functor reads. Up to three leading strides in elements, the last one is 1.
struct FunctorTensor {
  const void* data;
  long long strides[3];
};

inline constexpr int max_functor_tensors = 8;

struct AttentionParams {
  const void* q;  ///< (batch, seqlen_q, heads_q, head_dim)
  const void* k;  ///< (batch, seqlen_kv, heads_q / gqa_ratio, head_dim)
  const void* v;  ///< (batch, seqlen_kv, heads_q / gqa_ratio, head_dim_v)
  void* o;        ///< (batch, seqlen_q, heads_q, head_dim_v)
  float* lse;     ///< (batch, heads_q, seqlen_q), natural log; may be null
  TensorStrides q_strides;
  TensorStrides k_strides;
  TensorStrides v_strides;
  TensorStrides o_strides;
  TensorStrides lse_strides;
  int batch;
  int batch_begin;   ///< first batch entry of this launch: a launch has room for so many
  int q_tile_begin;  ///< first query tile of this launch, for the same reason
  int heads_q;
  int heads_kv;
  int seqlen_q;
  int seqlen_kv;
  float softmax_scale;
  FunctorTensor tensors[max_functor_tensors];
};

}  // namespace jit
