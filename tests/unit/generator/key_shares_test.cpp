#include "templates/scheduling/key_shares.cuh"

#include <algorithm>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/host_functors.h"
#include "tests/support/seed.h"

namespace jit {
namespace {

struct ShareTileSpace {
  std::vector<int> tiles;  // of each work tile
  TileSpace size{0, false, longest_tile_space, 0};
};

ShareTileSpace random_share_tile_space(reference::Random& random, int work_tiles, int least, int most) {
  ShareTileSpace tile_space;
  for (int i = 0; i < work_tiles; ++i) {
    tile_space.tiles.push_back(reference::draw(random, least, most));
    tile_space.size.total += work_tile_length(tile_space.tiles.back());
    tile_space.size.least_tiles = std::min(tile_space.size.least_tiles, tile_space.tiles.back());
    tile_space.size.most_tiles = std::max(tile_space.size.most_tiles, tile_space.tiles.back());
  }
  return tile_space;
}

// Every tile of every work tile is some block's, once; the blocks that have a split stand side by side, and each
// knows how many there are.
void expect_partition(const ShareTileSpace& tile_space, int blocks, int num_splits) {
  const KeyShares shares = key_shares(tile_space.size, blocks, num_splits);
  ASSERT_GE(static_cast<long long>(shares.length) * blocks, shares.total);
  ASSERT_EQ(shares.all_in_tile_space(tile_space.size.total), shares.total);
  int begin = 0;
  int last_shared = -1;
  int last_block = -1;  // of the work tile before
  bool goes_on = false;
  for (const int tiles : tile_space.tiles) {
    int next = 0, splits = 0, expected = 0, first = -1;
    for (int block = 0; block < blocks; ++block) {
      const WorkTileSplit split = shares.split(block, begin, tiles);
      if (!split.is_mine) continue;
      if (first < 0) first = block;
      EXPECT_EQ(split.first_block, first);
      EXPECT_EQ(block, first + splits);
      EXPECT_EQ(split.tile_begin, next);
      EXPECT_TRUE(split.tile_end > split.tile_begin || tiles == 0);
      next = split.tile_end;
      expected = split.splits;
      ++splits;
    }
    EXPECT_EQ(next, tiles);
    EXPECT_EQ(splits, expected);
    EXPECT_GE(splits, 1);
    if (num_splits > 0) {
      EXPECT_LE(splits, num_splits);
    }
    EXPECT_EQ(goes_on, first == last_block);
    EXPECT_TRUE(splits == 1 || shares.cuts_work_tiles());
    last_block = first + splits - 1;
    goes_on = shares.goes_on(shares.split(first, begin, tiles), begin + shares.in_tile_space(tiles));
    if (splits > 1) {  // places of partial results, counted as results.cuh does, are the work tile's own
      EXPECT_GT(2 * first + 1, last_shared);
      last_shared = 2 * first + splits;
      EXPECT_LT(last_shared, 2 * blocks);
    }
    begin += shares.in_tile_space(tiles);
  }
  EXPECT_FALSE(goes_on);
}

TEST(KeyShares, PartitionTheTileSpace) {
  reference::Random random(reference::test_seed());
  for (int i = 0; i < 300; ++i) {
    const int most = i % 3 == 0 ? 2 : 200, least = i % 4 == 0 ? most : 0;
    const ShareTileSpace tile_space =
        random_share_tile_space(random, reference::draw(random, 1, i % 8 == 0 ? 700 : 40), least, most);
    const int blocks = reference::draw(random, 1, 264);
    for (const int num_splits : {0, 1, 2, 3, 17}) expect_partition(tile_space, blocks, num_splits);
    if (::testing::Test::HasFailure()) FAIL() << "case " << i << ", " << blocks << " blocks";
  }
}

TEST(KeyShares, LongTileSpacesAreSharedEvenly) {
  const KeyShares shares = key_shares({longest_tile_space, false, 1, 1 << 20}, 132, 0);
  EXPECT_LT(shares.length, longest_tile_space / 132 * 1.0001);
  EXPECT_GE(static_cast<long long>(shares.length) * 132, longest_tile_space);
}

// One work tile is as long as the tile space, or a few are, and `num_splits` leaves most blocks without work: the
// places of these are no 32-bit numbers.
TEST(KeyShares, PlacesOnLongTileSpacesDoNotOverflow) {
  constexpr int blocks = 528, most_tiles = longest_tile_space / tile_cost - 1;
  for (const int num_splits : {1, 2, 3}) {
    for (const int strands : {1, 2, 3, 8}) {
      const int tiles = most_tiles / strands, total = strands * work_tile_length(tiles);
      for (const int least_tiles : {tiles, 0}) {
        const KeyShares shares = key_shares({total, true, least_tiles, tiles, strands}, blocks, num_splits);
        ASSERT_FALSE(shares.is_scheduled);
        int with_work = 0;
        for (int block = 0; block < blocks; ++block) {
          const StrandPlace place = shares.place(block);
          const std::int64_t begin = std::int64_t{place.column} * shares.length;
          EXPECT_EQ(shares.has_work(place), block < blocks / strands * strands && begin < shares.total);
          if (!shares.has_work(place)) continue;
          ++with_work;
          const std::int64_t strand_begin = std::int64_t{place.strand} * shares.strand_blocks * shares.length;
          EXPECT_EQ(shares.strand_begin(place.strand), strand_begin);
          EXPECT_EQ(shares.begin(shares.block_at(place)), strand_begin + begin);
        }
        EXPECT_GE(with_work, strands);
        const bool has_short_ranges =
            num_splits == 1 && least_tiles < tiles;  // work tiles go to one block each
        EXPECT_LE(with_work, has_short_ranges ? blocks : strands * (num_splits + 1));
      }
    }
  }
}

// Work tiles that are alike have as many splits each, and no block has splits of two; or they are not cut.
TEST(KeyShares, WorkTilesThatAreAlikeAreCutAlike) {
  constexpr int blocks = 132;
  struct Case {
    int work_tiles, tiles, splits, per_block;
  };
  for (const Case& c :
       {Case{8, 16, 16, 0}, {8, 1024, 16, 0}, {128, 64, 1, 1}, {512, 8, 1, 4}, {16, 100, 8, 0}}) {
    const KeyShares shares =
        key_shares({c.work_tiles * work_tile_length(c.tiles), false, c.tiles, c.tiles}, blocks, 0);
    for (int work_tile = 0; work_tile < c.work_tiles; ++work_tile) {
      const int begin = work_tile * shares.in_tile_space(c.tiles);
      const int first = c.splits > 1 ? work_tile * c.splits : work_tile / c.per_block;
      const WorkTileSplit split = shares.split(first, begin, c.tiles);
      EXPECT_TRUE(split.is_mine);
      EXPECT_EQ(split.first_block, first);
      EXPECT_NEAR(split.splits, c.splits, 1);
      EXPECT_LE(split.splits, c.splits);
    }
  }
}

// A work tile for each block, and several: nothing is shared.
TEST(KeyShares, TileSpacesThatCutNoWorkTilesAreKnown) {
  const auto of_alike = [](int work_tiles, int num_splits) {
    return key_shares({work_tiles * work_tile_length(64), false, 64, 64}, 132, num_splits);
  };
  EXPECT_FALSE(of_alike(128, 0).cuts_work_tiles());
  EXPECT_FALSE(of_alike(264, 0).cuts_work_tiles());
  EXPECT_FALSE(of_alike(2, 1).cuts_work_tiles());
  EXPECT_TRUE(of_alike(2, 0).cuts_work_tiles());
  EXPECT_TRUE(of_alike(140, 0).cuts_work_tiles());
}

TEST(KeyShares, ManyWorkTilesOfTheSameKeysAreScheduledWhole) {
  const TileSpace many{1000 * work_tile_length(20), true, 1, 20};
  EXPECT_TRUE(key_shares(many, 100, 0).is_scheduled);
  EXPECT_FALSE(key_shares({many.total, false, 1, 20}, 100, 0).is_scheduled);
  EXPECT_FALSE(key_shares({many.total, true, 1, 40}, 100, 0).is_scheduled) << "one would make a block late";
  const WorkTileSplit split = key_shares(many, 100, 0).split(7, 123, 20);
  EXPECT_TRUE(split.is_mine && split.splits == 1 && split.tile_begin == 0 && split.tile_end == 20);
}

// Heads that have several tiles of rows each, in a tile space of several strands.
struct Heads {
  std::vector<std::vector<int>> tiles;  // of each work tile of a head
  TileSpace size{0, true, longest_tile_space, 0};

  int most_tiles(std::size_t head) const { return *std::max_element(tiles[head].begin(), tiles[head].end()); }
};

Heads random_heads(reference::Random& random, int strands, int heads, int most) {
  Heads all;
  all.size.strands = strands;
  for (int i = 0; i < heads; ++i) {
    const int longest = reference::draw(random, 0, most), rows = strands * reference::draw(random, 1, 3);
    std::vector<int>& tiles = all.tiles.emplace_back();
    for (int row = 0; row < rows; ++row) {
      tiles.push_back(std::max(0, longest - reference::draw(random, 0, 1)));
      all.size.least_tiles = std::min(all.size.least_tiles, tiles.back());
    }
    all.size.most_tiles = std::max(all.size.most_tiles, all.most_tiles(all.tiles.size() - 1));
    all.size.total += static_cast<int>(tiles.size()) * work_tile_length(all.most_tiles(all.tiles.size() - 1));
  }
  return all;
}

struct Share {
  int block;  // of those that the GPU runs
  int tile_space_block;
  WorkTileSplit split;
};

// Every tile of every work tile is some block's, once; those of a work tile stand side by side in the order of the
// tile space; and tiles of rows side by side are cut at the same keys, and are those of blocks side by side.
void expect_strands(const Heads& heads, int blocks, int num_splits) {
  const KeyShares shares = key_shares(heads.size, blocks, num_splits);
  if (shares.is_scheduled) return;
  const int strands = heads.size.strands;
  ASSERT_EQ(shares.strands, strands);
  std::vector<std::vector<std::vector<Share>>> found(heads.tiles.size());
  for (std::size_t head = 0; head < heads.tiles.size(); ++head) found[head].resize(heads.tiles[head].size());
  for (int block = 0; block < blocks; ++block) {
    KeyShares mine = shares;
    const StrandPlace place = shares.place(block);
    if (!shares.has_work(place)) continue;
    const int tile_space_block = shares.block_at(place);
    EXPECT_LT(tile_space_block, blocks);
    mine.enter_strand(place.strand);
    int begin = shares.strand_begin(place.strand);
    int last_head = -1;
    bool goes_on = false;  // as the work tile before says that it had the block as its last one
    for (std::size_t head = 0; head < heads.tiles.size(); ++head) {
      for (std::size_t row = static_cast<std::size_t>(place.strand); row < heads.tiles[head].size();
           row += static_cast<std::size_t>(strands)) {
        const int next = begin + mine.in_tile_space(heads.most_tiles(head));
        const WorkTileSplit split = mine.split(tile_space_block, begin, heads.tiles[head][row]);
        if (last_head >= 0) {
          EXPECT_EQ(goes_on, split.is_mine);
        }
        last_head = -1;
        if (split.is_mine) {
          found[head][row].push_back({block, tile_space_block, split});
          if (tile_space_block == split.first_block + split.splits - 1) {
            last_head = static_cast<int>(head);
            goes_on = mine.goes_on(split, next);
          }
        }
        begin = next;
      }
    }
    EXPECT_TRUE(last_head < 0 || !goes_on);
    EXPECT_EQ(begin, mine.total);
  }
  std::vector<bool> is_taken(static_cast<std::size_t>(2 * blocks));  // places of partial results
  for (std::size_t head = 0; head < heads.tiles.size(); ++head) {
    for (std::size_t row = 0; row < heads.tiles[head].size(); ++row) {
      const std::vector<Share>& splits = found[head][row];
      ASSERT_FALSE(splits.empty());
      int next = 0;
      for (std::size_t i = 0; i < splits.size(); ++i) {
        EXPECT_EQ(splits[i].split.splits, static_cast<int>(splits.size()));
        EXPECT_EQ(splits[i].split.first_block, splits[0].tile_space_block);
        EXPECT_EQ(splits[i].tile_space_block, splits[0].tile_space_block + static_cast<int>(i));
        EXPECT_EQ(splits[i].split.tile_begin, next);
        next = splits[i].split.tile_end;
        if (splits.size() == 1) continue;
        EXPECT_TRUE(shares.cuts_work_tiles());
        auto taken = is_taken.begin() + 2 * splits[0].tile_space_block + 1 + static_cast<int>(i);
        EXPECT_FALSE(*taken);
        *taken = true;
      }
      EXPECT_EQ(next, heads.tiles[head][row]);
      if (num_splits > 0) {
        EXPECT_LE(static_cast<int>(splits.size()), num_splits);
      }
      if (row % static_cast<std::size_t>(strands) == 0 ||
          heads.tiles[head][row] != heads.tiles[head][row - 1])
        continue;
      const std::vector<Share>& beside = found[head][row - 1];
      ASSERT_EQ(splits.size(), beside.size());
      for (std::size_t i = 0; i < splits.size(); ++i) {
        EXPECT_EQ(splits[i].block, beside[i].block + 1);
        EXPECT_EQ(splits[i].split.tile_begin, beside[i].split.tile_begin);
        EXPECT_EQ(splits[i].split.tile_end, beside[i].split.tile_end);
      }
    }
  }
}

TEST(KeyShares, StrandsAreCutAtTheSameKeys) {
  reference::Random random(reference::test_seed());
  for (int i = 0; i < 150; ++i) {
    const int strands = reference::draw(random, 2, most_strands);
    const int blocks = i % 10 == 0 ? strands : reference::draw(random, strands, 264);
    const Heads heads = random_heads(random, strands, reference::draw(random, 1, 40), i % 3 == 0 ? 2 : 200);
    for (const int num_splits : {0, 1, 2, 3, 17}) expect_strands(heads, blocks, num_splits);
    if (::testing::Test::HasFailure())
      FAIL() << "case " << i << ", " << blocks << " blocks, " << strands << " strands";
  }
}

TEST(KeyShares, NumbersOfStrandsThatLeaveFewBlocksOver) {
  const auto best = [](int row_tiles, int blocks) {
    int score = 0;
    for (int strands = 1; strands <= 32; ++strands)
      score = std::max(score, strands_score(strands, strands_of_rows(row_tiles), blocks));
    return strands_of_score(score);
  };
  EXPECT_EQ(best(1, 132), 1);
  EXPECT_EQ(best(2, 132), 2);
  EXPECT_EQ(best(3, 132), 3);
  EXPECT_EQ(best(8, 132), 4) << "8 would leave 4 blocks over";
  EXPECT_EQ(best(5, 132), 5) << "2 blocks are left over";
  EXPECT_EQ(best(7, 132), 7) << "6 blocks are";
  EXPECT_EQ(best(5 * 11, 132), 5);
  EXPECT_EQ(best(7, 62), 1) << "6 of 62 are too many";
  EXPECT_EQ(best(11, 132), 1) << "more than keys are worth reading at the same time";
  EXPECT_EQ(best(64, 128), 8);
  EXPECT_EQ(best(6, 4), 2) << "3 would leave one over";
  EXPECT_EQ(best(7, 5), 1);
  EXPECT_EQ(best(4, 1), 1);
}

// Where work tiles are alike, strands are cut alike: as many splits, or whole work tiles, as in one tile space.
TEST(KeyShares, StrandsOfWorkTilesThatAreAlike) {
  for (const int work_tiles : {2, 8, 32, 66, 128, 264}) {
    const TileSpace one{work_tiles * work_tile_length(64), true, 64, 64}, two{one.total, true, 64, 64, 2};
    const KeyShares plain = key_shares(one, 132, 0), split = key_shares(two, 132, 0);
    EXPECT_EQ(split.length, plain.length) << work_tiles;
    EXPECT_EQ(split.cut_length, plain.cut_length) << work_tiles;
    EXPECT_EQ(split.cuts_work_tiles(), plain.cuts_work_tiles()) << work_tiles;
  }
}

TEST(KeyShares, StrandsThatLoseMuchAreNone) {
  EXPECT_TRUE(may_have_strands(6400, 6400));
  EXPECT_TRUE(may_have_strands(6400, 6500));
  EXPECT_FALSE(may_have_strands(6400, 6501));
  const TileSpace many{1000 * work_tile_length(20), true, 20, 20, 2};
  EXPECT_EQ(key_shares(many, 100, 0).strands, 1) << "work_tiles are scheduled";
}

TEST(KeyShares, QuotientsAreExact) {
  reference::Random random(reference::test_seed());
  for (int i = 0; i < 100000; ++i) {
    const int y = reference::draw(random, 1, i % 2 == 0 ? 1 << 24 : longest_tile_space);
    const int x =
        reference::draw(random, 0, std::min<long long>(longest_tile_space, static_cast<long long>(y) * 1000));
    ASSERT_EQ(small_quotient(x, y), x / y) << x << " / " << y;
  }
}

}  // namespace
}  // namespace jit
