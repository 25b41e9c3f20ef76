// Finds documents that follow one another in a batch of dense sequences, for a kernel to which they are varlen sequences. A
// block has a batch entry and finds where ids change; the last one to finish lays the documents of all entries side by side.
// The table stays empty, and another kernel computes the call, if an id comes back in some entry, ids of queries and keys
// differ, or there are more documents than the table holds.
#pragma once

#include "base/prelude.cuh"
#include "find_documents/params.cuh"
#include "ptx/atomic.cuh"
#include "ptx/griddepcontrol.cuh"

namespace jit::find_documents {

inline constexpr int warps = find_documents_threads / warp_size;

/// The sum of the values of the threads before this one, and that of all. By all threads of a block.
struct Sums {
  int before;
  int all;
};
JIT_DEVICE Sums sum_of_block(int value) {
  __shared__ int of_warps[warps];
  int up_to_own = value;
#pragma unroll
  for (int distance = 1; distance < warp_size; distance *= 2) {
    const int other = __shfl_up_sync(full_warp, up_to_own, distance);
    if (lane_id() >= distance) up_to_own += other;
  }
  __syncthreads();  // earlier sums have been read
  if (lane_id() == warp_size - 1) of_warps[warp_id()] = up_to_own;
  __syncthreads();
  Sums sums{up_to_own - value, 0};
#pragma unroll
  for (int warp = 0; warp < warps; ++warp) {
    if (warp < warp_id()) sums.before += of_warps[warp];
    sums.all += of_warps[warp];
  }
  return sums;
}

/// Writes where the first `most` documents of an entry begin. Returns how many there are; more than `most` also where ids of
/// queries and keys differ. By all threads of a block.
JIT_DEVICE int find_changes(const int* ids_q, const int* ids_kv, int seqlen, int most, int* begins) {
  constexpr int ids_at_once = 8;
  int found = 0;
  bool differ = false;
#pragma unroll 1
  for (int begin = 0; begin < seqlen; begin += find_documents_threads * ids_at_once) {
    const int first = begin + static_cast<int>(threadIdx.x) * ids_at_once;
    int ids[ids_at_once + 1], other[ids_at_once];
#pragma unroll
    for (int i = 0; i <= ids_at_once; ++i) ids[i] = ids_kv[maximum(0, minimum(first + i, seqlen) - 1)];
#pragma unroll
    for (int i = 0; i < ids_at_once; ++i) other[i] = ids_q[minimum(first + i, seqlen - 1)];
    unsigned changes = 0;
#pragma unroll
    for (int i = 0; i < ids_at_once; ++i) {
      const bool exists = first + i < seqlen;
      changes |= exists && (first + i == 0 || ids[i + 1] != ids[i]) ? 1u << i : 0;
      differ |= exists && other[i] != ids[i + 1];  // mutate: IdsOfQueriesAreThoseOfKeys
    }
    const Sums sums = sum_of_block(__popc(changes));
    int place = found + sums.before;
    for (; changes != 0; changes &= changes - 1, ++place) {
      if (place < most) begins[place] = first + __ffs(static_cast<int>(changes)) - 1;
    }
    found += sums.all;
  }
  return __syncthreads_or(differ) ? most + 1 : found;
}

/// Whether an id comes back after another one. By all threads of a block.
JIT_DEVICE bool comes_back(const int* ids, const int* begins, int count) {
  bool found = false;
  for (int pair = threadIdx.x; pair < count * count; pair += find_documents_threads) {
    const int a = pair / count, b = pair - a * count;
    found |= a < b && ids[begins[a]] == ids[begins[b]];  // mutate: AnIdComesBack
  }
  return __syncthreads_or(found) != 0;
}

/// Writes the documents of a batch entry. By all threads of a block.
JIT_DEVICE void find_in_entry(const FindDocuments& of, int entry) {
  const int most = documents_of_entry(of.seqlen);
  int* const begins = of.begins + static_cast<long long>(entry) * most;
  const int* const ids = of.ids_kv + entry * of.stride_kv;
  const int count =
      of.may_find ? find_changes(of.ids_q + entry * of.stride_q, ids, of.seqlen, most, begins) : most + 1;
  const bool are_apart = count <= most && !comes_back(ids, begins, count);  // mutate: DocumentsFitTheTable
  if (threadIdx.x == 0) of.counts[entry] = are_apart ? count : 0;
}

/// Whether some entry has no documents that follow one another. By all threads of a block.
JIT_DEVICE bool is_dense(const FindDocuments& of) {
  bool found = false;
  for (int entry = threadIdx.x; entry < of.batch; entry += find_documents_threads)
    found |= of.counts[entry] == 0;
  return __syncthreads_or(found) != 0;
}

/// Lays the documents of all entries side by side. Returns how many there are. By all threads of a block.
JIT_DEVICE int write_documents(const FindDocuments& of) {
  __shared__ int places[find_documents_threads];
  const int most = documents_of_entry(of.seqlen);
  int found = 0;
#pragma unroll 1
  for (int begin = 0; begin < of.batch; begin += find_documents_threads) {
    const int own = begin + static_cast<int>(threadIdx.x);
    const Sums sums = sum_of_block(own < of.batch ? of.counts[own] : 0);
    places[threadIdx.x] = found + sums.before;
    __syncthreads();
    for (int i = warp_id(); i < minimum(find_documents_threads, of.batch - begin); i += warps) {
      const int entry = begin + i;
      for (int document = lane_id(); document < of.counts[entry]; document += warp_size)
        of.boundaries[places[i] + document] =
            entry * of.seqlen + of.begins[static_cast<long long>(entry) * most + document];
    }
    found += sums.all;
    __syncthreads();
  }
  return found;
}

/// By a block for each batch entry.
JIT_DEVICE void find_documents(const FindDocuments& of) {
  __shared__ bool is_last;
  griddepcontrol_wait();
  find_in_entry(of, static_cast<int>(blockIdx.x));
  __syncthreads();
  if (threadIdx.x == 0) is_last = atomic_inc_acq_rel(of.done, gridDim.x - 1) == gridDim.x - 1;
  __syncthreads();
  if (!is_last) return;
  const bool dense = is_dense(of);
  const int found = dense ? 0 : write_documents(of), all = of.batch * documents_of_entry(of.seqlen);
  for (int i = found + static_cast<int>(threadIdx.x); i <= all; i += find_documents_threads)
    of.boundaries[i] = of.batch * of.seqlen;
  if (threadIdx.x == 0) *of.is_dense = dense;  // mutate: TheDenseKernelComputes
}

}  // namespace jit::find_documents
