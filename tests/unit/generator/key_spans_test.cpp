// Spans of keys: how units are cut between them, and the tree in whose order their results are merged.
#include "templates/scheduling/key_spans.cuh"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "templates/split_keys/unit_nodes.cuh"
#include "tests/support/host_functors.h"
#include "tests/support/seed.h"

namespace jit {
namespace {

struct TestUnit {
  int tile_begin;
  int tile_end;
  int tiles() const { return tile_end - tile_begin; }
};

struct Line {
  std::vector<TestUnit> units;
  LineSize size{0, false, longest_line, 0};

  void add(const TestUnit& unit) {
    units.push_back(unit);
    size.total += unit_length(unit.tiles());
    size.least_tiles = std::min(size.least_tiles, unit.tiles());
    size.most_tiles = std::max(size.most_tiles, unit.tiles());
  }
};

Line random_line(reference::Random& random, int units, int least, int most) {
  Line line;
  for (int i = 0; i < units; ++i) {
    const int begin = reference::draw(random, 0, 2) == 0 ? reference::draw(random, 0, 100) : 0;
    line.add({begin, begin + reference::draw(random, least, most)});
  }
  return line;
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

// Takes the spans of a part as a block does. Returns the unit's result where the part is all of it.
std::string keep_part(const SpanNote& note, Texts& kept) {
  for (int span = note.part_begin; span < std::max(note.part_end, note.part_begin + 1); ++span) {
    std::string text = std::to_string(span);
    const bool is_done = settle(
        {note.part_begin, note.part == 0}, {span, 0}, note.parts == 1 && span + 1 >= note.part_end,
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

std::string merged_text(const SpanNote& note, int span_tiles, const std::vector<Texts>& kept) {
  std::map<int, std::string> waiting;
  std::string text;
  for (UnitNodes walk(note, span_tiles); walk.has_node();) {
    const SpanNode node = walk.node();
    text = kept.at(walk.part()).at({node.is_right(), node.level});
    walk.advance();
    const bool is_done = settle(
        walk.spans(), node, !walk.has_node(),
        [&](const SpanNode& left) { text = "(" + waiting.at(left.level) + " " + text + ")"; },
        [&](const SpanNode& above) { waiting[above.level] = text; });
    if (is_done) return text;
  }
  return "not done";
}

// Every tile of a unit is some block's, once, blocks stand side by side, and their spans come together to one tree.
void expect_unit(const KeyShares& shares, const UnitCuts& cuts, int blocks, int span_tiles, int num_splits) {
  int next = 0;
  std::vector<Texts> kept;
  SpanNote note{};
  std::string whole;
  for (int block = 0; block < blocks; ++block) {
    const UnitPart part = span_part(shares, cuts, block, span_tiles);
    if (!part.is_mine) continue;
    EXPECT_EQ(block - part.first_block, static_cast<int>(kept.size()));
    EXPECT_EQ(part.tile_begin, next);
    EXPECT_TRUE(part.tile_end > part.tile_begin || cuts.tile_begin == cuts.tile_end);
    if (part.tile_begin > 0) {
      EXPECT_EQ((cuts.tile_begin + part.tile_begin) % span_tiles, 0);
    }
    next = part.tile_end;
    note.part = block - part.first_block;
    note.parts = part.parts;
    note.first_block = part.first_block;
    note.cuts = cuts;
    note.part_begin = (cuts.tile_begin + part.tile_begin) / span_tiles;
    note.part_end = rounded_up_quotient(cuts.tile_begin + part.tile_end, span_tiles);
    whole = keep_part(note, kept.emplace_back());
    const int levels = span_levels(cuts.span_end(span_tiles));
    for (const auto& [place, text] : kept.back()) EXPECT_LT(place.second, levels);
  }
  EXPECT_EQ(next, cuts.tile_end - cuts.tile_begin);
  ASSERT_EQ(static_cast<int>(kept.size()), note.parts);
  if (num_splits > 0) {
    EXPECT_LE(note.parts, num_splits);
  }
  const int begin = cuts.span_begin(span_tiles), end = std::max(begin + 1, cuts.span_end(span_tiles));
  EXPECT_EQ(note.parts == 1 ? whole : merged_text(note, span_tiles, kept),
            expected_text(begin, end, {0, span_levels(end)}));
}

TEST(KeySpans, ComeTogetherToOneTreeHoweverTheyAreShared) {
  reference::Random random(reference::test_seed());
  for (int i = 0; i < 120; ++i) {
    const int most = i % 3 == 0 ? 2 : 200, least = i % 4 == 0 ? most : 0;
    const Line line = random_line(random, reference::draw(random, 1, i % 8 == 0 ? 300 : 40), least, most);
    const int blocks = reference::draw(random, 1, 150), span_tiles = reference::draw(random, 1, 17);
    for (const int num_splits : {0, 1, 2, 3, 17}) {
      const KeyShares shares = span_shares(line.size, blocks, num_splits, span_tiles);
      ASSERT_GE(static_cast<long long>(shares.length) * blocks, shares.total);
      int begin = 0;
      for (const TestUnit& unit : line.units) {
        expect_unit(shares, {begin, shares.length, unit.tile_begin, unit.tile_end}, blocks, span_tiles,
                    num_splits);
        begin += shares.on_line(unit.tiles());
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
    const Line line = random_line(random, reference::draw(random, 1, 60), i % 2 == 0 ? 100 : 0, 100);
    const int blocks = reference::draw(random, 1, 150), span_tiles = reference::draw(random, 1, 9);
    const KeyShares shares = span_shares(line.size, blocks, 0, span_tiles);
    std::vector<int> lengths(static_cast<std::size_t>(blocks));
    int begin = 0;
    for (const TestUnit& unit : line.units) {
      const UnitCuts cuts{begin, shares.length, unit.tile_begin, unit.tile_end};
      for (int block = 0; block < blocks; ++block) {
        const UnitPart part = span_part(shares, cuts, block, span_tiles);
        if (part.is_mine)
          lengths[static_cast<std::size_t>(block)] +=
              tile_cost * (part.tile_end - part.tile_begin) + unit_cost;
      }
      begin += shares.on_line(unit.tiles());
    }
    const int even = line.size.total / blocks + 1, span = tile_cost * span_tiles;
    EXPECT_LE(*std::max_element(lengths.begin(), lengths.end()),
              std::max(even, span) + 2 * span + 2 * unit_cost)
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
