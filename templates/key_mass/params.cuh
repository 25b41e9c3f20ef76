// The parameters of the kernel of key masses, for the host and the device.
#pragma once

#include "base/element.cuh"
#include "base/host_device.cuh"
#include "base/params.cuh"
#include "base/tensor_strides.cuh"

namespace jit {

struct KeyMassParams {
  AttentionParams attention;  ///< q, k and lse; heads_kv is the number of heads of `mass`
  float* mass;                ///< (batch, heads, seqlen_kv); varlen: (heads, total_k)
  TensorStrides mass_strides;
};

// A block owns keys, and queries come by: 4 warps of 32 keys, so that two products share each fragment of queries. Long rows
// of so many keys exceed the shared memory of sm_86, sm_89 and sm_120.
JIT_HOST_DEVICE constexpr int key_mass_keys(int head_dim) { return head_dim > 192 ? 64 : 128; }
inline constexpr int key_mass_queries = 64;
inline constexpr int key_mass_warps = 4;
inline constexpr int key_mass_stages = 2;

/// Byte offsets from the start of dynamic shared memory: K, then for each stage Q and its LSE.
struct KeyMassSmem {
  int queries;
  int lse;  ///< from the start of a stage
  int stage_bytes;
  int total;
};

JIT_HOST_DEVICE constexpr KeyMassSmem key_mass_smem(int head_dim) {
  const int row = shared_columns(head_dim, 1) * element_bytes;
  KeyMassSmem smem{};
  smem.queries = key_mass_keys(head_dim) * row;
  smem.lse = key_mass_queries * row;
  smem.stage_bytes = smem.lse + key_mass_queries * 4;
  smem.total = smem.queries + key_mass_stages * smem.stage_bytes;
  return smem;
}

}  // namespace jit
