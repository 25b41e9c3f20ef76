#include "templates/scheduling/key_shares.cuh"

#include <vector>

#include <gtest/gtest.h>

#include "tests/support/host_functors.h"
#include "tests/support/seed.h"

namespace jit {
namespace {

struct Line {
  std::vector<int> tiles;  // of each unit
  LineSize size{0, false, longest_line, 0};
};

Line random_line(reference::Random& random, int units, int least, int most) {
  Line line;
  for (int i = 0; i < units; ++i) {
    line.tiles.push_back(reference::draw(random, least, most));
    line.size.total += unit_length(line.tiles.back());
    line.size.least_tiles = std::min(line.size.least_tiles, line.tiles.back());
    line.size.most_tiles = std::max(line.size.most_tiles, line.tiles.back());
  }
  return line;
}

// Every tile of every unit is some block's, once; the blocks that have a part stand side by side, and each knows how
// many there are.
void expect_partition(const Line& line, int blocks, int num_splits) {
  const KeyShares shares = key_shares(line.size, blocks, num_splits);
  ASSERT_GE(static_cast<long long>(shares.length) * blocks, shares.total);
  ASSERT_EQ(shares.all_on_line(line.size.total), shares.total);
  int begin = 0;
  int last_shared = -1;
  int last_block = -1;  // of the unit before
  bool goes_on = false;
  for (const int tiles : line.tiles) {
    int next = 0, parts = 0, expected = 0, first = -1;
    for (int block = 0; block < blocks; ++block) {
      const UnitPart part = shares.part(block, begin, tiles);
      if (!part.is_mine) continue;
      if (first < 0) first = block;
      EXPECT_EQ(part.first_block, first);
      EXPECT_EQ(block, first + parts);
      EXPECT_EQ(part.tile_begin, next);
      EXPECT_TRUE(part.tile_end > part.tile_begin || tiles == 0);
      next = part.tile_end;
      expected = part.parts;
      ++parts;
    }
    EXPECT_EQ(next, tiles);
    EXPECT_EQ(parts, expected);
    EXPECT_GE(parts, 1);
    if (num_splits > 0) {
      EXPECT_LE(parts, num_splits);
    }
    EXPECT_EQ(goes_on, first == last_block);
    EXPECT_TRUE(parts == 1 || shares.cuts_units());
    last_block = first + parts - 1;
    goes_on = shares.goes_on(shares.part(first, begin, tiles), begin + shares.on_line(tiles));
    if (parts > 1) {  // places of partial results, counted as results.cuh does, are the unit's own
      EXPECT_GT(2 * first + 1, last_shared);
      last_shared = 2 * first + parts;
      EXPECT_LT(last_shared, 2 * blocks);
    }
    begin += shares.on_line(tiles);
  }
  EXPECT_FALSE(goes_on);
}

TEST(KeyShares, PartitionTheLine) {
  reference::Random random(reference::test_seed());
  for (int i = 0; i < 300; ++i) {
    const int most = i % 3 == 0 ? 2 : 200, least = i % 4 == 0 ? most : 0;
    const Line line = random_line(random, reference::draw(random, 1, i % 8 == 0 ? 700 : 40), least, most);
    const int blocks = reference::draw(random, 1, 264);
    for (const int num_splits : {0, 1, 2, 3, 17}) expect_partition(line, blocks, num_splits);
    if (::testing::Test::HasFailure()) FAIL() << "case " << i << ", " << blocks << " blocks";
  }
}

TEST(KeyShares, LongLinesAreSharedEvenly) {
  const KeyShares shares = key_shares({longest_line, false, 1, 1 << 20}, 132, 0);
  EXPECT_LT(shares.length, longest_line / 132 * 1.0001);
  EXPECT_GE(static_cast<long long>(shares.length) * 132, longest_line);
}

// Units that are alike have as many parts each, and no block has parts of two; or they are not cut.
TEST(KeyShares, UnitsThatAreAlikeAreCutAlike) {
  constexpr int blocks = 132;
  struct Case {
    int units, tiles, parts, per_block;
  };
  for (const Case& c :
       {Case{8, 16, 16, 0}, {8, 1024, 16, 0}, {128, 64, 1, 1}, {512, 8, 1, 4}, {16, 100, 8, 0}}) {
    const KeyShares shares = key_shares({c.units * unit_length(c.tiles), false, c.tiles, c.tiles}, blocks, 0);
    for (int unit = 0; unit < c.units; ++unit) {
      const int begin = unit * shares.on_line(c.tiles);
      const int first = c.parts > 1 ? unit * c.parts : unit / c.per_block;
      const UnitPart part = shares.part(first, begin, c.tiles);
      EXPECT_TRUE(part.is_mine);
      EXPECT_EQ(part.first_block, first);
      EXPECT_NEAR(part.parts, c.parts, 1);
      EXPECT_LE(part.parts, c.parts);
    }
  }
}

// A unit for each block, and several: nothing is shared.
TEST(KeyShares, LinesThatCutNoUnitsAreKnown) {
  const auto of_alike = [](int units, int num_splits) {
    return key_shares({units * unit_length(64), false, 64, 64}, 132, num_splits);
  };
  EXPECT_FALSE(of_alike(128, 0).cuts_units());
  EXPECT_FALSE(of_alike(264, 0).cuts_units());
  EXPECT_FALSE(of_alike(2, 1).cuts_units());
  EXPECT_TRUE(of_alike(2, 0).cuts_units());
  EXPECT_TRUE(of_alike(140, 0).cuts_units());
}

TEST(KeyShares, ManyUnitsOfTheSameKeysAreDealtWhole) {
  const LineSize many{1000 * unit_length(20), true, 1, 20};
  EXPECT_TRUE(key_shares(many, 100, 0).is_dealt);
  EXPECT_FALSE(key_shares({many.total, false, 1, 20}, 100, 0).is_dealt);
  EXPECT_FALSE(key_shares({many.total, true, 1, 40}, 100, 0).is_dealt) << "one would make a block late";
  const UnitPart part = key_shares(many, 100, 0).part(7, 123, 20);
  EXPECT_TRUE(part.is_mine && part.parts == 1 && part.tile_begin == 0 && part.tile_end == 20);
}

TEST(KeyShares, QuotientsAreExact) {
  reference::Random random(reference::test_seed());
  for (int i = 0; i < 100000; ++i) {
    const int y = reference::draw(random, 1, 1 << 24);
    const int x =
        reference::draw(random, 0, std::min<long long>(longest_line, static_cast<long long>(y) * 1000));
    ASSERT_EQ(small_quotient(x, y), x / y) << x << " / " << y;
  }
}

}  // namespace
}  // namespace jit
