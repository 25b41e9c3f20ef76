// Which rows the reference kernel computes, and where to. Compiled by the host and by NVRTC.
#pragma once

namespace jit {

/// Row r of the sample is row (r · step) mod (batch · heads_q · seqlen_q), counted (batch, head, query).
struct ReferenceRows {
  long long count;
  long long step;
  float* o;    ///< (count, head_dim_v)
  float* lse;  ///< (count)
};

}  // namespace jit
