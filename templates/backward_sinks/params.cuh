// The third parameter of the kernel of the sinks' gradients, beside AttentionParams and GradientParams. Compiled by the
// host and by NVRTC.
#pragma once

namespace jit {

/// How other kernels left what is known of each query (GradientParams::lse_log2, delta): whole tiles of queries, in any
/// order within a tile, and of varlen sequences where base/varlen_tiles.cuh has them. What a tile has beside its
/// queries is as queries without keys are; tiles without queries hold anything.
struct QueryStatisticsLayout {
  int tile;              ///< queries
  float factor;          ///< what makes delta of it: 1 or −1, with dropout over the share that is kept
  float score_unit = 1;  ///< what makes natural units of what rows are relative to
  bool has_means =
      false;  ///< whether gradients of means are among them, where a spec has such (mean_statistics)
};

}  // namespace jit
