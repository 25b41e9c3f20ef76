// Overlap of tiles and blocks of a block mask, for cost models.
#pragma once

#include <jit/spec.h>

namespace jit {

/// Ratio of the scores in all tiles that meet a block of the mask to those of the block: 1 if tiles are parts
/// of blocks, or without such a mask. Assumes that blocks are isolated.
double block_cover(const AttentionSpec& spec, int tile_q, int tile_kv);

}  // namespace jit
