// Which part of the problem a block computes.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"

namespace jit {

/// A length is the one baked into the kernel, else the caller's.
template <class Config>
__device__ __forceinline__ int seqlen_q_of(const AttentionParams& params) {
  return Config::seqlen_q != 0 ? Config::seqlen_q : params.seqlen_q;
}
template <class Config>
__device__ __forceinline__ int seqlen_kv_of(const AttentionParams& params) {
  return Config::seqlen_kv != 0 ? Config::seqlen_kv : params.seqlen_kv;
}

struct BlockPlace {
  int batch;
  int head;     ///< query head
  int q_begin;  ///< first query
};

/// The place of this block in a grid of (heads, query tiles, batch). Later queries see more keys under most
/// masks: the blocks of all heads start with them, which leaves the short blocks for the end, when they even
/// out what each multiprocessor has to do. Computed anew at each call, so that a kernel need not keep it in
/// registers through its main loop; without a division, so that it stays in uniform registers.
template <int tile_q>
__device__ __forceinline__ BlockPlace block_place(const AttentionParams& params, int seqlen_q) {
  const int tiles_q = (seqlen_q + tile_q - 1) / tile_q;
  return {.batch = params.batch_begin + static_cast<int>(blockIdx.z),
          .head = static_cast<int>(blockIdx.x),
          .q_begin = (tiles_q - 1 - params.q_tile_begin - static_cast<int>(blockIdx.y)) * tile_q};
}

}  // namespace jit
