// The generator and the rate of kernels with dropout: a part of AttentionParams. Compiled by the host and by NVRTC.
#pragma once

#include "base/host_device.cuh"

namespace jit {

/// Whether kernels of a Config have dropout; other Configs lack the member.
template <class Config>
concept has_dropout = Config::dropout;

/// The precomputed dropout mask, one bit per score, written by an earlier kernel: words of 32 lanes for a block of
/// queries and keys (steps/precomputed_dropout.cuh); blocks of keys are contiguous, then blocks of queries, then heads
/// of batch entries.
struct DropoutMaskBits {
  unsigned* words;
  int query_blocks;  ///< of a head
  int key_blocks;
};

/// Whether kernels of a Config read a precomputed dropout mask instead of drawing.
template <class Config>
concept has_dropout_mask_ahead = Config::dropout_mask_ahead;

struct DropoutParams {
  const unsigned long long* rng_state;  ///< seed and offset of the generator, read on the device alone
  float keep_probability;               ///< 1 − rate
  float scale;                          ///< 1 / keep_probability
  /// The largest random byte that keeps a score, in each byte.
  unsigned thresholds;
  DropoutMaskBits mask;  ///< only for configs that precompute the dropout mask
};

/// Queries and keys of a block of the mask, and words per lane.
struct DropoutMaskBlock {
  int queries, keys, words;
};

/// For products whose rows are queries: a warp's rows of a tile of keys, one word per 64 keys; the last one may be half
/// empty.
JIT_HOST_DEVICE constexpr DropoutMaskBlock dropout_mask_for_query_rows(int tile_kv) {
  return {16, tile_kv, (tile_kv + 63) / 64};
}
/// For products whose rows are keys: a word for each of two warps that have 16 keys each.
JIT_HOST_DEVICE constexpr DropoutMaskBlock dropout_mask_for_key_rows() { return {64, 32, 2}; }

/// Threads of a block of the drawing kernel, and scores per warp.
inline constexpr int drawing_threads = 256, scores_of_warp = 16 * 1024;
/// Blocks of keys for which a warp draws the bits.
JIT_HOST_DEVICE constexpr int key_blocks_of_warp(const DropoutMaskBlock& block) {
  const int blocks = scores_of_warp / (block.queries * block.keys);
  return blocks < 1 ? 1 : blocks;
}

}  // namespace jit
