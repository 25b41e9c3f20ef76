// The parameters of the kernel of an indexer's loss, and its shared memory. Compiled by the host and by NVRTC.
#pragma once

#include "base/element.cuh"
#include "base/host_device.cuh"

namespace jit {

/// The work of a launch.
enum class IndexLossStep : int {
  loss,
  lists,  ///< gradients of q and weights, and what each list adds to its keys
  keys,   ///< gradients of keys: the sums of that
};

struct IndexLossParams {
  const void* q;  ///< (tokens, heads, head_dim)
  long long q_token;
  long long q_head;
  const void* k;  ///< (keys, head_dim)
  long long k_row;
  const float* weights;  ///< (tokens, heads)
  long long weight_token;
  long long weight_head;
  const int* lists;  ///< (tokens, entries)
  long long list_token;
  const int* counts;  ///< (tokens); null: all entries count
  long long count_token;
  const float* targets;  ///< (tokens, entries), not normalized
  long long target_token;
  float* loss;  ///< (tokens)
  long long loss_token;
  const float* d_loss;  ///< (tokens)
  long long d_loss_token;
  void* dq;
  long long dq_token;
  long long dq_head;
  void* dk;
  long long dk_row;
  float* d_weights;
  long long d_weight_token;
  long long d_weight_head;
  float* scores;      ///< (lists of this launch, entries): scores, later their gradients
  float* parts;       ///< (lists of this launch, entries, head_dim): what a list adds to its keys
  const int* starts;  ///< of lists transposed (transpose_lists), (keys + 1)
  const int* places;  ///< (lists · entries)
  float* sums;        ///< (keys, head_dim): what launches before this one add; of several alone
  int keys;
  int entries;
  int first_list;  ///< of this launch
  bool is_first;   ///< of launches that add to the same keys
  bool is_last;
  IndexLossStep step;
};

inline constexpr int index_loss_threads = 256;
inline constexpr int index_loss_keys = 64;  ///< of a step

/// Heads in a tile.
JIT_HOST_DEVICE constexpr int index_loss_rows(int heads) { return (heads + 15) / 16 * 16; }

/// Byte offsets from the start of dynamic shared memory.
struct IndexLossSmem {
  int q;
  int k;
  int active;   ///< (heads, keys), 16 bits: the weight of a head where its product is above 0
  int slopes;   ///< likewise: the gradient of the key's score
  int weights;  ///< of heads, as the next one
  int factors;  ///< by which sums of dQ are multiplied
  int places;   ///< of keys, as the next one
  int d_score;
  int column_sums;  ///< (units of 16 heads, keys)
  int row_sums;     ///< (units of 16 keys, heads)
  int of_warps;
  int total;
};

JIT_HOST_DEVICE constexpr IndexLossSmem index_loss_smem(int heads, int head_dim) {
  const int rows = index_loss_rows(heads), keys = index_loss_keys, row = head_dim * element_bytes;
  IndexLossSmem smem{};
  smem.k = smem.q + rows * row;
  smem.active = smem.k + keys * row;
  smem.slopes = smem.active + rows * keys * element_bytes;
  smem.weights = smem.slopes + rows * keys * element_bytes;
  smem.factors = smem.weights + rows * 4;
  smem.places = smem.factors + rows * 4;
  smem.d_score = smem.places + keys * 4;
  smem.column_sums = smem.d_score + keys * 4;
  smem.row_sums = smem.column_sums + rows / 16 * keys * 4;
  smem.of_warps = smem.row_sums + keys / 16 * rows * 4;
  smem.total = smem.of_warps + index_loss_threads / 32 * 4;
  return smem;
}

}  // namespace jit
