// The parameters of the kernel of masses of listed keys, and its shared memory. Compiled by the host and by NVRTC.
#pragma once

#include "base/element.cuh"
#include "base/host_device.cuh"

namespace jit {

struct ListMassParams {
  const void* q;  ///< (tokens, heads_kv · heads, head_dim)
  long long q_token;
  long long q_head;
  const void* k;  ///< (keys, heads_kv, head_dim)
  long long k_row;
  long long k_head;
  const float* lse;  ///< (heads_kv · heads, tokens)
  long long lse_head;
  long long lse_token;
  const int* lists;  ///< (tokens, entries)
  long long list_token;
  const int* counts;  ///< (tokens); null: all entries count
  long long count_token;
  float* mass;  ///< (tokens, entries)
  long long mass_token;
  float exponent;  ///< of 2, for each unit of q · k
  int heads_kv;
  int keys;
  int entries;
};

inline constexpr int list_mass_threads = 128;

/// Rows of q, heads that share a KV head, and keys of a step.
struct ListMassTile {
  int rows;
  int keys;
};

/// Byte offsets from the start of dynamic shared memory.
struct ListMassSmem {
  int q;
  int k;
  int lse;     ///< of rows
  int places;  ///< of keys
  int sums;    ///< (units of 16 rows, keys)
  int total;
};

JIT_HOST_DEVICE constexpr ListMassSmem list_mass_smem(int head_dim, const ListMassTile& tile) {
  const int row = padded_head_dim(head_dim) * element_bytes;
  ListMassSmem smem{};
  smem.k = smem.q + tile.rows * row;
  smem.lse = smem.k + tile.keys * row;
  smem.places = smem.lse + tile.rows * 4;
  smem.sums = smem.places + tile.keys * 4;
  smem.total = smem.sums + tile.rows / 16 * tile.keys * 4;
  return smem;
}

}  // namespace jit
