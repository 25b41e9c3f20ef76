#include "generator/kernels/persistent/work_order.h"

#include <algorithm>
#include <queue>
#include <set>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/random_spec.h"
#include "tests/support/seed.h"

namespace jit {
namespace {

constexpr std::int64_t h200_l2_bytes = 60 << 20;
constexpr int h200_blocks = 132;

AttentionSpec causal(int head_dim) { return {.head_dim = head_dim, .mask = mask::causal()}; }

std::vector<WorkTile> tiles_in_order(const WorkOrder& order, int heads) {
  std::vector<WorkTile> tiles;
  for (int i = 0; i < order.tiles(); ++i) tiles.push_back(work_tile<128>(order, i, heads, 0));
  return tiles;
}

// Tiles of keys that a tile of queries sees under a causal mask, and what it takes to begin with it.
double work_of(const WorkTile& tile) { return tile.q_begin / 128 + 1 + 1.5; }

// How much longer the last block takes than all would if they had the same to do, when each asks for the next
// tile a little before it has finished one.
double unevenness(const std::vector<WorkTile>& tiles, int blocks) {
  constexpr double asked_before = 4;
  using Block = std::pair<double, double>;  // when it asks for the next tile, when it has finished
  std::priority_queue<Block, std::vector<Block>, std::greater<>> queue;
  for (int i = 0; i < blocks; ++i) queue.emplace(0, 0);
  double last = 0, all = 0;
  for (const WorkTile& tile : tiles) {
    const auto [asks, ends] = queue.top();
    queue.pop();
    const double end = std::max(asks, ends) + work_of(tile);
    queue.emplace(std::max(asks, end - asked_before), end);
    last = std::max(last, end);
    all += work_of(tile);
  }
  return last / (all / blocks);
}

TEST(WorkOrder, ListsEachTileOnce) {
  reference::Random random(reference::test_seed());
  for (int i = 0; i < 200; ++i) {
    const int heads = reference::draw(random, 1, 12), batch = reference::draw(random, 1, 9);
    WorkOrder order{};
    order.rows = reference::draw(random, 1, 9);
    order.slices = heads * batch;
    order.section_slices = reference::draw(random, 1, order.slices);
    order.last_rows = reference::draw(random, 0, order.rows);
    order.first_rows = reference::draw(random, 0, order.rows - order.last_rows);
    std::set<std::tuple<int, int, int>> seen;
    for (int index = 0; index < order.tiles(); ++index) {
      const auto [b, h, q] = work_tile<64>(order, index, heads, 3);
      EXPECT_TRUE(b >= 3 && b < 3 + batch && h >= 0 && h < heads && q >= 0 && q < order.rows * 64);
      EXPECT_TRUE(seen.emplace(b, h, q).second);
    }
    EXPECT_EQ(static_cast<int>(seen.size()), order.tiles());
  }
}

// Sections of unequal size left the last blocks with a few long tiles: head_dim 128 with 4,096 tokens took a
// ninth longer than the same work spread evenly.
TEST(WorkOrder, BlocksEndTogether) {
  for (const int head_dim : {64, 128, 256}) {
    for (const int seqlen : {512, 1024, 2048, 4096, 8192, 16384}) {
      const int heads = 2048 / head_dim, slices = heads * (16384 / seqlen);
      const WorkSize size{.seqlen_q = seqlen,
                          .seqlen_kv = seqlen,
                          .slices = slices,
                          .tile_q = 128,
                          .blocks = h200_blocks,
                          .l2_bytes = h200_l2_bytes};
      const WorkOrder order = work_order(causal(head_dim), size);
      EXPECT_LT(unevenness(tiles_in_order(order, heads), h200_blocks), 1.04) << head_dim << ", " << seqlen;
    }
  }
}

TEST(WorkOrder, SectionsFitTheCacheAndAreOfOneSize) {
  const WorkSize size{.seqlen_q = 4096,
                      .seqlen_kv = 4096,
                      .slices = 64,
                      .tile_q = 128,
                      .blocks = h200_blocks,
                      .l2_bytes = h200_l2_bytes};
  const WorkOrder order = work_order(causal(128), size);
  EXPECT_EQ(order.rows, 32);
  EXPECT_EQ(order.section_slices, 8);  // nine fit, but would leave a last section of one
  EXPECT_EQ(order.last_rows, 8);
  EXPECT_EQ(work_order({.head_dim = 128, .gqa_ratio = 4, .mask = mask::causal()}, size).section_slices, 32);
  WorkSize short_size = size;
  short_size.seqlen_q = short_size.seqlen_kv = 1024;
  EXPECT_EQ(work_order(causal(128), short_size).last_rows, 0);
  const WorkOrder unmasked = work_order({.head_dim = 128}, size);
  EXPECT_EQ(unmasked.section_slices, 1);
  EXPECT_EQ(unmasked.last_rows, 0);
}

// The rows of a block mask are listed by their number of blocks: those with most of any slice must not wait for the
// sections before its own.
TEST(WorkOrder, LongestRowsOfABlockMaskComeFirst) {
  const AttentionSpec spec{.head_dim = 128, .mask = mask::block_mask(128, 128, mask::causal())};
  WorkSize size{.seqlen_q = 8192,
                .seqlen_kv = 8192,
                .slices = 64,
                .tile_q = 128,
                .blocks = h200_blocks,
                .l2_bytes = h200_l2_bytes};
  const WorkOrder order = work_order(spec, size);
  EXPECT_EQ(order.section_slices, 4);
  EXPECT_EQ(order.first_rows, 3);  // 132 blocks over 64 slices
  EXPECT_EQ(order.last_rows, 6);
  const std::vector<WorkTile> tiles = tiles_in_order(order, 16);
  for (int i = 0; i < 3 * 64; ++i) EXPECT_EQ(tiles[i].q_begin, (63 - i / 64) * 128) << i;
  for (int i = 0; i < 4 * 55; ++i) {  // the first section
    const WorkTile& tile = tiles[3 * 64 + i];
    EXPECT_EQ(tile.q_begin, (60 - i / 4) * 128) << i;
    EXPECT_EQ(tile.head, i % 4) << i;
  }
  for (int i = 0; i < 6 * 64; ++i) EXPECT_EQ(tiles[58 * 64 + i].q_begin, (5 - i / 64) * 128) << i;

  // Whose rows are not listed by the table: tiles with rows of several blocks.
  WorkSize other = size;
  other.tile_q = 192;
  EXPECT_EQ(work_order(spec, other).first_rows, 0);

  size.slices = 16;  // a wave would be nine rows
  EXPECT_EQ(work_order(spec, size).first_rows, 8);
  EXPECT_EQ(work_order(spec, size).last_rows, 16);
  size.seqlen_q = 1024;
  EXPECT_EQ(work_order(spec, size).first_rows, 0);
  EXPECT_EQ(work_order(spec, size).last_rows, 0);
}

TEST(WorkOrder, LaunchesWithKeyWordsFillTheirTableAndTheGpu) {
  EXPECT_EQ(entries_with_key_words(64, 1024, h200_blocks), 8);    // 8 × 64 places
  EXPECT_EQ(entries_with_key_words(512, 16, h200_blocks), 33);    // one would fit: 16 tiles for 132 blocks
  EXPECT_EQ(entries_with_key_words(1000, 4096, h200_blocks), 1);  // tiles of keys share places
  EXPECT_EQ(entries_with_key_words(1, 1, h200_blocks), 512);      // as many as there are places
  EXPECT_EQ(entries_with_key_words(0, 1, h200_blocks), 512);
}

}  // namespace
}  // namespace jit
