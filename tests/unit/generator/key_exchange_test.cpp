// The copies of an exchange of keys, for random placements: every key that a rank needs comes once, what is sent is what is
// waited for, and pieces say so.
#include "generator/operations/key_exchange/plan.h"

#include <random>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/seed.h"

namespace jit {
namespace {

class KeyExchangePlan : public ::testing::Test {
 protected:
  std::mt19937_64 random_{reference::test_seed()};
  int draw(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }
};

TEST_F(KeyExchangePlan, BringsWhatIsNeededOnce) {
  for (int round = 0; round < 60; ++round) {
    const int ranks = draw(1, 6), granule = 128 * draw(1, 2),
              seqlen = granule * ranks * draw(1, 9) + draw(0, 99);
    const Mask masks[] = {mask::causal(), mask::none(), mask::sliding_window(draw(1, 700))};
    const PlacementMode modes[] = {PlacementMode::balanced, PlacementMode::contiguous,
                                   PlacementMode::striped};
    const Placement placement =
        place(work_of_mask(masks[draw(0, 2)], seqlen, granule), ranks, {.mode = modes[draw(0, 2)]});
    const KeyExchangeSpec spec{.heads_kv = draw(1, 4), .chunk_bytes = draw(1, 1 << 20)};
    for (int rank = 0; rank < ranks; ++rank) {
      const std::vector<KeyCopy> copies = copies_to(spec, placement, rank);
      std::set<std::int64_t> keys;
      std::set<int> begun;
      for (std::size_t word = 0; word < copies.size(); ++word) {
        const auto& [source, range] = copies[word];
        EXPECT_NE(source, rank);
        EXPECT_EQ(range == IndexRange{}, word < static_cast<std::size_t>(ranks) - 1)
            << "words alone come first";
        if (range == IndexRange{}) {
          EXPECT_TRUE(begun.insert(source).second);
        }
        EXPECT_EQ(range.begin % 128, 0);
        for (std::int64_t key = range.begin; key < range.end; ++key) {
          EXPECT_TRUE(keys.insert(key).second) << "twice";
          EXPECT_EQ(placement.owners[static_cast<std::size_t>(key / granule)], source);
        }
      }
      EXPECT_EQ(static_cast<std::int64_t>(keys.size()), placement.remote_rows(rank));
      EXPECT_EQ(begun.size(), static_cast<std::size_t>(ranks) - 1);

      // Pieces: own runs without a word, then one for each copy, whose words ascend.
      const std::vector<ArrivalPiece> pieces = pieces_of(placement, rank, copies);
      int words = 0;
      std::int64_t own = 0;
      for (const ArrivalPiece& piece : pieces) {
        EXPECT_GE(piece.words, words);
        words = piece.words;
        if (words == 0) {
          EXPECT_EQ(piece.row, own);
          own += piece.end - piece.begin;
          continue;
        }
        const KeyCopy& copy = copies[static_cast<std::size_t>(words) - 1];
        EXPECT_EQ(copy.keys, (IndexRange{piece.begin, piece.end}));
      }
      EXPECT_EQ(own, placement.rows(rank));

      // Granules, in the order of pieces, wait for as many words.
      const std::vector<ArrivalGranule> granules = granules_of(placement, pieces);
      EXPECT_EQ(granules.size(), static_cast<std::size_t>((seqlen + 127) / 128));
      std::size_t visited = 0;
      for (const ArrivalPiece& piece : pieces) {
        for (int begin = piece.begin; begin < piece.end; begin += arrival_granule, ++visited) {
          EXPECT_EQ(granules[visited].visited, begin / arrival_granule);
          EXPECT_EQ(granules[static_cast<std::size_t>(begin / arrival_granule)].words, piece.words);
        }
      }

      std::size_t sent_here = 0;
      for (int source = 0; source < ranks; ++source) {
        int last = -1;
        for (const SentCopy& sent : copies_from(spec, placement, source)) {
          if (sent.target != rank) continue;
          const KeyCopy& copy = copies[static_cast<std::size_t>(sent.word)];
          EXPECT_EQ(copy.source, source);
          EXPECT_EQ(copy.keys, sent.keys);
          EXPECT_GT(sent.word, last) << "in the order in which they are waited for";
          last = sent.word;
          ++sent_here;
        }
      }
      EXPECT_EQ(sent_here, copies.size());
    }
  }
}

TEST_F(KeyExchangePlan, CopiesGrow) {
  const Placement halves = place(work_of_mask(mask::none(), 1 << 16), 2, {.mode = PlacementMode::contiguous});
  const std::vector<KeyCopy> copies = copies_to({.heads_kv = 8}, halves, 0);
  std::vector<std::int64_t> lengths;
  for (const KeyCopy& copy : copies) lengths.push_back(copy.keys.end - copy.keys.begin);
  EXPECT_EQ(lengths, (std::vector<std::int64_t>{0, 1024, 2048, 4096, 8192, 8192, 8192, 1024}));
}

}  // namespace
}  // namespace jit
