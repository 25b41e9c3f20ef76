// Scores that tiles cover beyond the blocks of a block mask, and the tiles that cost models choose for them.
#include "generator/kernels/block_cover.h"

#include <gtest/gtest.h>

#include "generator/kernels/families.h"
#include "generator/kernels/search.h"

namespace jit {
namespace {

AttentionSpec in_blocks(int block_q, int block_kv) {
  return {.head_dim = 128, .mask = mask::causal() && mask::block_mask(block_q, block_kv)};
}

TEST(BlockCover, IsOneOfTilesThatArePartsOfBlocks) {
  EXPECT_EQ(block_cover(in_blocks(128, 128), 128, 64), 1);
  EXPECT_EQ(block_cover(in_blocks(256, 512), 64, 128), 1);
  EXPECT_EQ(block_cover({.mask = mask::causal()}, 192, 80), 1);
}

TEST(BlockCover, GrowsWithWhatTilesReachBeyondBlocks) {
  EXPECT_EQ(block_cover(in_blocks(64, 64), 128, 64), 2);
  EXPECT_EQ(block_cover(in_blocks(64, 64), 128, 192), 6);
  EXPECT_DOUBLE_EQ(block_cover(in_blocks(128, 128), 128, 176), (128 + 176 - 16) / 128.0);
}

TEST(BlockCover, TheUntunedTilesOfHopperArePartsOfBlocks) {
  const DeviceLimits limits = device_limits(Arch{9, 0, 'a'});
  const ProblemShape shape{.batch = 4, .heads_q = 16, .seqlen_q = 8192, .seqlen_kv = 8192};
  for (const int block : {64, 128, 256}) {
    const AttentionSpec spec = in_blocks(block, block);
    const auto first = std::get<ForwardWgmma>(ranked_configs(spec, shape, limits).at(0));
    EXPECT_EQ(block_cover(spec, first.tile_q, first.tile_kv), 1)
        << block << ": " << first.tile_q << ", " << first.tile_kv;
  }
}

}  // namespace
}  // namespace jit
