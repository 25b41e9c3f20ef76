// Spans of keys: how work tiles are cut between them, and the tree in whose order their results are merged.
#include "templates/scheduling/key_spans.cuh"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "templates/split_keys/span_tree.cuh"
#include "tests/support/host_functors.h"
#include "tests/support/seed.h"

namespace jit {
namespace {

struct TestWorkTile {
  int tile_begin;
  int tile_end;
  int tiles() const { return tile_end - tile_begin; }
};

struct RandomTileSpace {
  std::vector<TestWorkTile> work_tiles;
  TileSpace size{0, false, longest_tile_space, 0};

  void add(const TestWorkTile& work_tile) {
    work_tiles.push_back(work_tile);
    size.total += work_tile_length(work_tile.tiles());
    size.least_tiles = std::min(size.least_tiles, work_tile.tiles());
    size.most_tiles = std::max(size.most_tiles, work_tile.tiles());
  }
};

RandomTileSpace random_tile_space(reference::Random& random, int work_tiles, int least, int most) {
  RandomTileSpace tile_space;
  for (int i = 0; i < work_tiles; ++i) {
    const int begin = reference::draw(random, 0, 2) == 0 ? reference::draw(random, 0, 100) : 0;
    tile_space.add({begin, begin + reference::draw(random, least, most)});
  }
  return tile_space;
}

// The results of spans as text: what was merged with what.
using Texts = std::map<std::pair<bool, int>, std::string>;  // of right or left nodes of each level

std::string expected_text(int begin, int end, const SpanNode& node) {
  if (node.end() <= begin || node.first >= end) return "";
  if (node.level == 0) return std::to_string(node.first);
  const SpanNode left{node.first, node.level - 1}, right{node.first + (1 << left.level), left.level};
  const std::string texts[] = {expected_text(begin, end, left), expected_text(begin, end, right)};
  return texts[0].empty() || texts[1].empty() ? texts[0] + texts[1] : "(" + texts[0] + " " + texts[1] + ")";
}

// Takes the spans of a split as a block does. Returns the work tile's result where the split is all of it.
std::string keep_split(const SpanInfo& info, Texts& kept) {
  for (int span = info.split_begin; span < std::max(info.split_end, info.split_begin + 1); ++span) {
    std::string text = std::to_string(span);
    const bool is_done = settle(
        {info.split_begin, info.split == 0}, {span, 0}, info.splits == 1 && span + 1 >= info.split_end,
        [&](const SpanNode& left) {
          text = "(" + kept.at({left.is_right(), left.level}) + " " + text + ")";
        },
        [&](const SpanNode& node) {
          kept[{node.is_right(), node.level}] = text;
        });
    if (is_done) return text;
  }
  return "";
}

std::string merged_text(const SpanInfo& info, int span_tiles, const std::vector<Texts>& kept) {
  std::map<int, std::string> waiting;
  std::string text;
  for (WorkTileNodes walk(info, span_tiles); walk.has_node();) {
    const SpanNode node = walk.node();
    text = kept.at(walk.split()).at({node.is_right(), node.level});
    walk.advance();
    const bool is_done = settle(
        walk.spans(), node, !walk.has_node(),
        [&](const SpanNode& left) { text = "(" + waiting.at(left.level) + " " + text + ")"; },
        [&](const SpanNode& above) { waiting[above.level] = text; });
    if (is_done) return text;
  }
  return "not done";
}

// Every tile of a work tile is some block's, once, blocks stand side by side, and their spans come together to one
// tree.
void expect_work_tile(const KeyShares& shares, const WorkTileCuts& cuts, int blocks, int span_tiles,
                      int num_splits) {
  int next = 0;
  std::vector<Texts> kept;
  SpanInfo info{};
  std::string whole;
  for (int block = 0; block < blocks; ++block) {
    const WorkTileSplit split = span_split(shares, cuts, block, span_tiles);
    if (!split.is_mine) continue;
    EXPECT_EQ(block - split.first_block, static_cast<int>(kept.size()));
    EXPECT_EQ(split.tile_begin, next);
    EXPECT_TRUE(split.tile_end > split.tile_begin || cuts.tile_begin == cuts.tile_end);
    if (split.tile_begin > 0) {
      EXPECT_EQ((cuts.tile_begin + split.tile_begin) % span_tiles, 0);
    }
    next = split.tile_end;
    info.split = block - split.first_block;
    info.splits = split.splits;
    info.first_block = split.first_block;
    info.cuts = cuts;
    info.split_begin = (cuts.tile_begin + split.tile_begin) / span_tiles;
    info.split_end = rounded_up_quotient(cuts.tile_begin + split.tile_end, span_tiles);
    whole = keep_split(info, kept.emplace_back());
    const int levels = span_levels(cuts.span_end(span_tiles));
    for (const auto& [place, text] : kept.back()) EXPECT_LT(place.second, levels);
  }
  EXPECT_EQ(next, cuts.tile_end - cuts.tile_begin);
  ASSERT_EQ(static_cast<int>(kept.size()), info.splits);
  if (num_splits > 0) {
    EXPECT_LE(info.splits, num_splits);
  }
  const int begin = cuts.span_begin(span_tiles), end = std::max(begin + 1, cuts.span_end(span_tiles));
  EXPECT_EQ(info.splits == 1 ? whole : merged_text(info, span_tiles, kept),
            expected_text(begin, end, {0, span_levels(end)}));
}

TEST(KeySpans, ComeTogetherToOneTreeHoweverTheyAreShared) {
  reference::Random random(reference::test_seed());
  for (int i = 0; i < 60; ++i) {
    const int most = i % 3 == 0 ? 2 : 200, least = i % 4 == 0 ? most : 0;
    const RandomTileSpace tile_space =
        random_tile_space(random, reference::draw(random, 1, i % 8 == 0 ? 300 : 40), least, most);
    const int blocks = reference::draw(random, 1, 150), span_tiles = reference::draw(random, 1, 17);
    for (const int num_splits : {0, 1, 2, 3, 17}) {
      const KeyShares shares = span_shares(tile_space.size, blocks, num_splits, span_tiles);
      ASSERT_GE(static_cast<long long>(shares.length) * blocks, shares.total);
      int begin = 0;
      for (const TestWorkTile& work_tile : tile_space.work_tiles) {
        expect_work_tile(shares, {begin, shares.length, work_tile.tile_begin, work_tile.tile_end}, blocks,
                         span_tiles, num_splits);
        begin += shares.in_tile_space(work_tile.tiles());
      }
      ASSERT_EQ(begin, shares.total);
      if (::testing::Test::HasFailure())
        FAIL() << "case " << i << ", " << blocks << " blocks, spans of " << span_tiles << ", " << num_splits;
    }
  }
}

// No block has more than a span beyond its even share, and one for the ends of spans that are cut short.
TEST(KeySpans, AreSharedEvenly) {
  reference::Random random(reference::test_seed());
  for (int i = 0; i < 200; ++i) {
    const RandomTileSpace tile_space =
        random_tile_space(random, reference::draw(random, 1, 60), i % 2 == 0 ? 100 : 0, 100);
    const int blocks = reference::draw(random, 1, 150), span_tiles = reference::draw(random, 1, 9);
    const KeyShares shares = span_shares(tile_space.size, blocks, 0, span_tiles);
    std::vector<int> lengths(static_cast<std::size_t>(blocks));
    int begin = 0;
    for (const TestWorkTile& work_tile : tile_space.work_tiles) {
      const WorkTileCuts cuts{begin, shares.length, work_tile.tile_begin, work_tile.tile_end};
      for (int block = 0; block < blocks; ++block) {
        const WorkTileSplit split = span_split(shares, cuts, block, span_tiles);
        if (split.is_mine)
          lengths[static_cast<std::size_t>(block)] +=
              tile_cost * (split.tile_end - split.tile_begin) + work_tile_cost;
      }
      begin += shares.in_tile_space(work_tile.tiles());
    }
    const int even = tile_space.size.total / blocks + 1, span = tile_cost * span_tiles;
    EXPECT_LE(*std::max_element(lengths.begin(), lengths.end()),
              std::max(even, span) + 2 * span + 2 * work_tile_cost)
        << "case " << i;
    if (::testing::Test::HasFailure()) FAIL() << blocks << " blocks, spans of " << span_tiles;
  }
}

TEST(KeySpans, LevelsOfATree) {
  EXPECT_EQ(span_levels(0), 1);
  EXPECT_EQ(span_levels(1), 1);
  EXPECT_EQ(span_levels(2), 2);
  EXPECT_EQ(span_levels(3), 3);
  EXPECT_EQ(span_levels(4), 3);
  EXPECT_EQ(span_levels(257), 10);
  EXPECT_LE(span_levels(0x7fffffff / 64), most_span_levels);
}

}  // namespace
}  // namespace jit
