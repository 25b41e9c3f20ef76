// The parameters of the kernel of gradients from lists of keys, and its shared memory. Compiled by the host and by NVRTC.
#pragma once

#include "base/element.cuh"
#include "base/gradient_params.cuh"
#include "base/host_device.cuh"
#include "base/params.cuh"

namespace jit {

/// The work of a launch.
enum class ListGradientStep : int {
  lists,  ///< dQ, and what each list adds to its keys
  keys,   ///< dK and dV: the sums of that
  sinks,  ///< the gradients of sinks
};

struct ListGradientsParams {
  AttentionParams attention;
  GradientParams gradients;  ///< `delta` is (heads_q, total_q), written
  /// The shares of lists in the gradients of their keys: (lists of this launch, KV heads, keys along the list, columns of k, and
  /// behind them those of v where there is a v).
  float* parts;
  int* blocks;  ///< (lists of this launch, KV heads, entries): the number of each entry's block; −1: none
  const int* starts;  ///< of `blocks` transposed (transpose_lists), (KV heads, block_limit + 1)
  const int* places;  ///< (KV heads, lists · entries)
  float* sums;        ///< (rows of k, KV heads, columns): what launches before this one add; of several alone
  int first_list;     ///< of this launch
  int lists;
  int block_limit;
  bool is_first;  ///< of launches that add to the same keys
  bool is_last;
  ListGradientStep step;
};

inline constexpr int list_gradient_threads = 256;

/// Rows of queries, of all heads that share a list, and keys of a step.
struct ListTile {
  int rows;
  int keys;
};

/// Byte offsets from the start of dynamic shared memory.
struct ListGradientSmem {
  int q;
  int d_o;
  int k;
  int v;  ///< that of k where values are columns of keys
  int p;
  int ds;
  int lse;     ///< of rows
  int delta;   ///< of rows
  int place;   ///< of keys: their row of k; −1: none
  int where;   ///< of keys: their position in the sequence
  int member;  ///< of keys: a bit for each query that shares the list
  int total;
};

JIT_HOST_DEVICE constexpr ListGradientSmem list_gradient_smem(int head_dim, int head_dim_v,
                                                              bool shares_values, const ListTile& tile) {
  const int row = padded_head_dim(head_dim) * element_bytes,
            row_v = padded_head_dim(head_dim_v) * element_bytes;
  ListGradientSmem smem{};
  smem.d_o = smem.q + tile.rows * row;
  smem.k = smem.d_o + tile.rows * row_v;
  smem.v = shares_values ? smem.k : smem.k + tile.keys * row;
  smem.p = smem.v + tile.keys * (shares_values ? row : row_v);
  smem.ds = smem.p + tile.rows * tile.keys * element_bytes;
  smem.lse = smem.ds + tile.rows * tile.keys * element_bytes;
  smem.delta = smem.lse + tile.rows * 4;
  smem.place = smem.delta + tile.rows * 4;
  smem.where = smem.place + tile.keys * 4;
  smem.member = smem.where + tile.keys * 4;
  smem.total = smem.member + tile.keys * 4;
  return smem;
}

/// Columns of what a list adds to a key.
JIT_HOST_DEVICE constexpr int list_part_columns(int head_dim, int head_dim_v, bool shares_values) {
  return shares_values ? head_dim : head_dim + head_dim_v;
}

}  // namespace jit
