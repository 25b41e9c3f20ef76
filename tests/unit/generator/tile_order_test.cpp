#include "templates/backward/tensor_maps.cuh"

#include <algorithm>
#include <queue>
#include <vector>

#include <gtest/gtest.h>

#include "generator/kernels/one_pass.h"

namespace jit::one_pass {
namespace {

// Steps of tiles of keys under a causal mask of as many queries as keys, of 64 queries and 128 keys, and what a tile costs
// beside them.
double steps_of(int key_tile, int key_tiles, int query_heads) {
  constexpr double around = 2;
  return 2.0 * (key_tiles - key_tile) * query_heads + around;
}

// When the last of `blocks` blocks ends that take whichever tile is next, over the time of an even share.
template <class Order>
double unevenness(const Order& of_tiles, const TileOrder& order, int query_heads, int blocks) {
  std::priority_queue<double, std::vector<double>, std::greater<>> ends;
  for (int i = 0; i < blocks; ++i) ends.push(0);
  double sum = 0, last = 0;
  for (int number = 0; number < order.count(); ++number) {
    const double steps = steps_of(of_tiles.tile(number) % order.key_tiles, order.key_tiles, query_heads);
    const double end = ends.top() + steps;
    ends.pop();
    ends.push(end);
    last = std::max(last, end);
    sum += steps;
  }
  return last / (sum / blocks);
}

double unevenness(const TileOrder& order, int query_heads, int blocks) {
  return unevenness(order, order, query_heads, blocks);
}

constexpr int multiprocessors = 132;

TileOrder order_of(const AttentionSpec& spec, int heads, int key_tiles) {
  return {.key_tiles = key_tiles,
          .heads = heads,
          .heads_together = heads_scheduled_together(spec, heads, key_tiles, multiprocessors)};
}

TEST(TileOrder, EachTileIsScheduledOnce) {
  for (int heads = 1; heads < 9; ++heads) {
    for (int key_tiles = 1; key_tiles < 7; ++key_tiles) {
      for (int together = 1; together <= heads; ++together) {
        const TileOrder order{key_tiles, heads, together};
        std::vector<int> scheduled;
        for (int number = 0; number < order.count(); ++number) scheduled.push_back(order.tile(number));
        std::sort(scheduled.begin(), scheduled.end());
        for (int i = 0; i < order.count(); ++i) ASSERT_EQ(scheduled.at(static_cast<std::size_t>(i)), i);
        // Tiles of each head ascend, since blocks may wait for one another in that order.
        std::vector<int> next(static_cast<std::size_t>(heads), 0);
        for (int number = 0; number < order.count(); ++number) {
          const int tile = order.tile(number);
          ASSERT_EQ(tile % key_tiles, next.at(static_cast<std::size_t>(tile / key_tiles))++);
        }
      }
    }
  }
}

// Blocks wait for tiles of their head that were drawn before: of the first heads those behind, of the others those in
// front.
TEST(DrawnOrder, EachTileIsDrawnOnceInTheOrderOfItsHead) {
  for (int heads = 1; heads < 7; ++heads) {
    for (int key_tiles = 1; key_tiles < 6; ++key_tiles) {
      for (int from_last = 0; from_last <= heads; ++from_last) {
        for (int together = 1; together <= heads; ++together) {
          const DrawnOrder order{{key_tiles, heads, together}, from_last};
          std::vector<int> drawn(static_cast<std::size_t>(heads), 0);
          for (int number = 0; number < order.order.count(); ++number) {
            const int head = order.tile(number) / key_tiles, tile = order.tile(number) % key_tiles;
            const int expected = drawn.at(static_cast<std::size_t>(head))++;
            ASSERT_EQ(tile, head < from_last ? key_tiles - 1 - expected : expected);
          }
          for (const int of_head : drawn) ASSERT_EQ(of_head, key_tiles);
        }
      }
    }
  }
}

TEST(DrawnOrder, CausalTilesLeaveNoBlockBehind) {
  const AttentionSpec causal{.mask = mask::causal()};
  for (const int tokens : {512, 1024, 2048, 4096, 8192}) {
    for (const int columns : {64, 128}) {
      const int heads = 2048 / columns * (16384 / tokens), key_tiles = tokens / 128;
      const auto [together, from_last] = heads_drawn(causal, heads, key_tiles, multiprocessors);
      const TileOrder order{key_tiles, heads, together};
      EXPECT_LT(unevenness(DrawnOrder{order, from_last}, order, 1, multiprocessors), 1.03) << tokens;
      if (tokens == 8192) {
        EXPECT_GT(unevenness(DrawnOrder{order, heads}, order, 1, multiprocessors), 1.03)
            << "where all heads begin with the last tile it would not be so";
      }
    }
  }
}

TEST(DrawnHeads, BitsOfAVarlenSequenceDependOnNoOther) {
  AttentionSpec spec{.mask = mask::causal()};
  spec.sequences_q = spec.sequences_kv = SequenceKind::varlen;
  for (const int heads : {1, 3, 33, 128}) {
    for (const int key_tiles : {1, 8, 200}) {
      EXPECT_EQ(heads_drawn(spec, heads, key_tiles, multiprocessors).from_last, 0);
      EXPECT_LE(heads_drawn(spec, heads, key_tiles, multiprocessors).together, 33);
    }
  }
  EXPECT_EQ(heads_drawn(spec, 0, 8, multiprocessors).together, 1);
  EXPECT_EQ(heads_drawn(spec, 5, 8, 1).together, 1);
}

TEST(TileOrder, HeadsFollowOneAnotherWithoutAMask) {
  const TileOrder order = order_of({}, 16, 64);
  for (int number = 0; number < order.count(); ++number) EXPECT_EQ(order.tile(number), number);
}

// 16,384 tokens, 16 query heads.
TEST(TileOrder, CausalTilesLeaveNoBlockBehind) {
  const AttentionSpec causal{.mask = mask::causal()};
  for (const int tokens : {512, 1024, 2048, 4096, 8192, 16384}) {
    for (const int query_heads : {1, 4, 8}) {
      if (tokens <= 1024 && query_heads == 1) continue;  // so many tiles that it matters little
      const int heads = 16 * (16384 / tokens) / query_heads, key_tiles = tokens / 128;
      const TileOrder order = order_of(causal, heads, key_tiles);
      EXPECT_LT(unevenness(order, query_heads, multiprocessors), 1.035) << tokens << ", " << query_heads;
      if (query_heads == 8 && tokens <= 8192) {
        EXPECT_GT(unevenness({key_tiles, heads, 1}, query_heads, multiprocessors), 1.4)
            << "head by head it would not be so";
      }
    }
  }
}

TEST(TileOrder, HeadsComeTogetherInEvenGroups) {
  const AttentionSpec causal{.mask = mask::causal()};
  EXPECT_EQ(heads_scheduled_together(causal, 32, 64, multiprocessors), 4);
  EXPECT_EQ(heads_scheduled_together(causal, 64, 64, multiprocessors), 4);
  EXPECT_EQ(heads_scheduled_together(causal, 256, 16, multiprocessors), 1)
      << "so many that it matters little";
  EXPECT_EQ(heads_scheduled_together(causal, 9, 64, multiprocessors), 5);
  EXPECT_EQ(heads_scheduled_together(causal, 3, 64, multiprocessors), 3);
  EXPECT_EQ(heads_scheduled_together(causal, 0, 64, multiprocessors), 1);
  EXPECT_EQ(heads_scheduled_together(causal, 4, 512, multiprocessors), 1);
  EXPECT_EQ(heads_scheduled_together(causal, 16, 9, multiprocessors), 16) << "16 varlen sequences";
}

}  // namespace
}  // namespace jit::one_pass
