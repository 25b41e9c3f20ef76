// Where the elements of a tensor lie. Compiled by the host and by NVRTC.
#pragma once

namespace jit {

/// Strides of a (batch, seqlen, heads, head_dim) tensor in elements; the stride of head_dim is 1. Varlen tensors have
/// no batch, and pages stand in its place.
struct TensorStrides {
  long long batch;
  long long seq;
  long long head;
};

}  // namespace jit
