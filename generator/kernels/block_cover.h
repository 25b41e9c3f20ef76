// Tiles under block masks, for cost models.
#pragma once

#include <jit/spec.h>

namespace jit {

/// How much more of the scores tiles of so many queries and keys cover than the blocks of the spec's block mask that they
/// meet: 1 where tiles are parts of blocks, or there are none. Taken for blocks that lie alone.
double block_cover(const AttentionSpec& spec, int tile_q, int tile_kv);

}  // namespace jit
