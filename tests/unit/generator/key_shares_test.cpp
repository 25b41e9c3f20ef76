#include "templates/scheduling/key_shares.cuh"

#include <algorithm>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/host_functors.h"
#include "tests/support/seed.h"

namespace jit {
namespace {

struct ShareLine {
  std::vector<int> tiles;  // of each unit
  LineSize size{0, false, longest_line, 0};
};

ShareLine random_share_line(reference::Random& random, int units, int least, int most) {
  ShareLine line;
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
void expect_partition(const ShareLine& line, int blocks, int num_splits) {
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
    const ShareLine line =
        random_share_line(random, reference::draw(random, 1, i % 8 == 0 ? 700 : 40), least, most);
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

// One unit is as long as the line, or a few are, and `num_splits` leaves most blocks without work: the places of these
// are no 32-bit numbers.
TEST(KeyShares, PlacesOnLongLinesDoNotOverflow) {
  constexpr int blocks = 528, most_tiles = longest_line / tile_cost - 1;
  for (const int num_splits : {1, 2, 3}) {
    for (const int strands : {1, 2, 3, 8}) {
      const int tiles = most_tiles / strands, total = strands * unit_length(tiles);
      for (const int least_tiles : {tiles, 0}) {
        const KeyShares shares = key_shares({total, true, least_tiles, tiles, strands}, blocks, num_splits);
        ASSERT_FALSE(shares.is_dealt);
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
        const bool has_short_pieces = num_splits == 1 && least_tiles < tiles;  // units go to one block each
        EXPECT_LE(with_work, has_short_pieces ? blocks : strands * (num_splits + 1));
      }
    }
  }
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

// Heads that have several tiles of rows each, on a line of several strands.
struct Heads {
  std::vector<std::vector<int>> tiles;  // of each unit of a head
  LineSize size{0, true, longest_line, 0};

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
    all.size.total += static_cast<int>(tiles.size()) * unit_length(all.most_tiles(all.tiles.size() - 1));
  }
  return all;
}

struct Share {
  int block;  // of those that the GPU runs
  int line_block;
  UnitPart part;
};

// Every tile of every unit is some block's, once; those of a unit stand side by side along the line; and tiles of rows
// side by side are cut at the same keys, and are those of blocks side by side.
void expect_strands(const Heads& heads, int blocks, int num_splits) {
  const KeyShares shares = key_shares(heads.size, blocks, num_splits);
  if (shares.is_dealt) return;
  const int strands = heads.size.strands;
  ASSERT_EQ(shares.strands, strands);
  std::vector<std::vector<std::vector<Share>>> found(heads.tiles.size());
  for (std::size_t head = 0; head < heads.tiles.size(); ++head) found[head].resize(heads.tiles[head].size());
  for (int block = 0; block < blocks; ++block) {
    KeyShares mine = shares;
    const StrandPlace place = shares.place(block);
    if (!shares.has_work(place)) continue;
    const int line_block = shares.block_at(place);
    EXPECT_LT(line_block, blocks);
    mine.enter_strand(place.strand);
    int begin = shares.strand_begin(place.strand);
    int last_head = -1;
    bool goes_on = false;  // as the unit before says that it had the block as its last one
    for (std::size_t head = 0; head < heads.tiles.size(); ++head) {
      for (std::size_t row = static_cast<std::size_t>(place.strand); row < heads.tiles[head].size();
           row += static_cast<std::size_t>(strands)) {
        const int next = begin + mine.on_line(heads.most_tiles(head));
        const UnitPart part = mine.part(line_block, begin, heads.tiles[head][row]);
        if (last_head >= 0) {
          EXPECT_EQ(goes_on, part.is_mine);
        }
        last_head = -1;
        if (part.is_mine) {
          found[head][row].push_back({block, line_block, part});
          if (line_block == part.first_block + part.parts - 1) {
            last_head = static_cast<int>(head);
            goes_on = mine.goes_on(part, next);
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
      const std::vector<Share>& parts = found[head][row];
      ASSERT_FALSE(parts.empty());
      int next = 0;
      for (std::size_t i = 0; i < parts.size(); ++i) {
        EXPECT_EQ(parts[i].part.parts, static_cast<int>(parts.size()));
        EXPECT_EQ(parts[i].part.first_block, parts[0].line_block);
        EXPECT_EQ(parts[i].line_block, parts[0].line_block + static_cast<int>(i));
        EXPECT_EQ(parts[i].part.tile_begin, next);
        next = parts[i].part.tile_end;
        if (parts.size() == 1) continue;
        EXPECT_TRUE(shares.cuts_units());
        auto taken = is_taken.begin() + 2 * parts[0].line_block + 1 + static_cast<int>(i);
        EXPECT_FALSE(*taken);
        *taken = true;
      }
      EXPECT_EQ(next, heads.tiles[head][row]);
      if (num_splits > 0) {
        EXPECT_LE(static_cast<int>(parts.size()), num_splits);
      }
      if (row % static_cast<std::size_t>(strands) == 0 ||
          heads.tiles[head][row] != heads.tiles[head][row - 1])
        continue;
      const std::vector<Share>& beside = found[head][row - 1];
      ASSERT_EQ(parts.size(), beside.size());
      for (std::size_t i = 0; i < parts.size(); ++i) {
        EXPECT_EQ(parts[i].block, beside[i].block + 1);
        EXPECT_EQ(parts[i].part.tile_begin, beside[i].part.tile_begin);
        EXPECT_EQ(parts[i].part.tile_end, beside[i].part.tile_end);
      }
    }
  }
}

TEST(KeyShares, StrandsAreCutAtTheSameKeys) {
  reference::Random random(reference::test_seed());
  for (int i = 0; i < 300; ++i) {
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

// Where units are alike, strands are cut alike: as many parts, or whole units, as on one line.
TEST(KeyShares, StrandsOfUnitsThatAreAlike) {
  for (const int units : {2, 8, 32, 66, 128, 264}) {
    const LineSize one{units * unit_length(64), true, 64, 64}, two{one.total, true, 64, 64, 2};
    const KeyShares plain = key_shares(one, 132, 0), split = key_shares(two, 132, 0);
    EXPECT_EQ(split.length, plain.length) << units;
    EXPECT_EQ(split.cut_length, plain.cut_length) << units;
    EXPECT_EQ(split.cuts_units(), plain.cuts_units()) << units;
  }
}

TEST(KeyShares, StrandsThatLoseMuchAreNone) {
  EXPECT_TRUE(may_have_strands(6400, 6400));
  EXPECT_TRUE(may_have_strands(6400, 6500));
  EXPECT_FALSE(may_have_strands(6400, 6501));
  const LineSize many{1000 * unit_length(20), true, 20, 20, 2};
  EXPECT_EQ(key_shares(many, 100, 0).strands, 1) << "units are dealt";
}

TEST(KeyShares, QuotientsAreExact) {
  reference::Random random(reference::test_seed());
  for (int i = 0; i < 100000; ++i) {
    const int y = reference::draw(random, 1, i % 2 == 0 ? 1 << 24 : longest_line);
    const int x =
        reference::draw(random, 0, std::min<long long>(longest_line, static_cast<long long>(y) * 1000));
    ASSERT_EQ(small_quotient(x, y), x / y) << x << " / " << y;
  }
}

}  // namespace
}  // namespace jit
