// How what is precomputed is cut into blocks. Compiled by the host and by NVRTC.
#pragma once

#include "base/host_device.cuh"

namespace jit {

/// Queries and keys whose bits lie together, and the words of them that each of 32 lanes has.
struct DropoutMaskBlock {
  int queries, keys, words;
};

/// For products whose rows are queries: a warp's rows of a tile of keys, a word for 64 of these, of which the last one may
/// be half empty.
JIT_HOST_DEVICE constexpr DropoutMaskBlock dropout_mask_for_query_rows(int tile_kv) {
  return {16, tile_kv, (tile_kv + 63) / 64};
}
/// For products whose rows are keys: a word for each of two warps that have 16 keys each.
JIT_HOST_DEVICE constexpr DropoutMaskBlock dropout_mask_for_key_rows() { return {64, 32, 2}; }

/// Threads of a block of the kernel that draws, and the scores of which a warp draws the bits.
inline constexpr int drawing_threads = 256, scores_of_warp = 16 * 1024;
/// Blocks of keys of which a warp draws the bits.
JIT_HOST_DEVICE constexpr int key_blocks_of_warp(const DropoutMaskBlock& block) {
  const int blocks = scores_of_warp / (block.queries * block.keys);
  return blocks < 1 ? 1 : blocks;
}

}  // namespace jit
