// The rows that the reference kernels compute, and their destination. Compiled by the host and by NVRTC.
#pragma once

namespace jit {

/// Row r of the sample is row (r · step) mod (batch · heads_q · seqlen_q), counted (batch, head, query).
struct ReferenceRows {
  long long count;
  long long step;
  float* o;    ///< (count, head_dim_v)
  float* lse;  ///< (count)
};

/// Which rows of gradients the other reference kernel computes: those of `queries` queries, counted as above, then of
/// `keys` keys, of which row r is (r · step) mod (batch · heads_kv · seqlen_kv), counted (batch, head, key).
struct ReferenceGradientRows {
  long long queries;
  long long keys;
  long long step;
  float* dq;  ///< (queries, head_dim)
  float* dk;  ///< (keys, head_dim)
  float* dv;  ///< (keys, head_dim_v)
};

}  // namespace jit
