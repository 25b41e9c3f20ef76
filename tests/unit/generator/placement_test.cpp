// Placements: each position has one rank, needs are those of the rows, and loads are balanced.
#include <jit/placement.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <functional>
#include <limits>
#include <random>
#include <set>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <jit/error.h>

#include "generator/functors/row_keys.h"
#include "tests/support/seed.h"

namespace jit {
namespace {

constexpr PlacementMode own_modes[] = {PlacementMode::balanced, PlacementMode::contiguous,
                                       PlacementMode::zigzag, PlacementMode::striped};

std::vector<std::int64_t> random_documents(std::mt19937& rng, std::int64_t seqlen, double median) {
  std::vector<std::int64_t> lengths;
  std::lognormal_distribution<double> draw(std::log(median), 1.3);
  for (std::int64_t left = seqlen; left > 0;) {
    const auto wanted = static_cast<std::int64_t>(std::clamp(draw(rng), 32.0, std::max(32.0, seqlen / 4.0)));
    lengths.push_back(std::min(wanted, left));
    left -= lengths.back();
  }
  return lengths;
}

std::int64_t positions_of(const std::vector<PositionPiece>& pieces, std::int64_t rows,
                          std::set<std::int64_t>& all) {
  for (std::int64_t row = 0; row < rows; ++row) {
    const auto next =
        std::find_if(pieces.begin(), pieces.end(), [&](const PositionPiece& p) { return p.row > row; });
    const PositionPiece& piece = *(next - 1);
    const std::int64_t i = row - piece.row;
    all.insert(piece.position + i / piece.run * piece.stride + i % piece.run);
  }
  return rows;
}

TEST(Placement, EachPositionHasOneRank) {
  std::mt19937 rng(static_cast<unsigned>(reference::test_seed()));
  for (int round = 0; round < 60; ++round) {
    const std::int64_t seqlen = 1 + static_cast<std::int64_t>(rng() % 3000);
    const int ranks = 1 + static_cast<int>(rng() % 9), granule = 16 * (1 + static_cast<int>(rng() % 8));
    const PlacementWork work =
        round % 2 == 0 ? work_of_mask(mask::causal(), seqlen, granule)
                       : work_of_mask(mask::causal(), seqlen, granule, random_documents(rng, seqlen, 200));
    for (const PlacementMode mode : own_modes) {
      const PlacementOptions options{.mode = mode, .stripe = 1 + static_cast<int>(rng() % 3)};
      const Placement placement = place(work, ranks, options);
      std::set<std::int64_t> all;
      std::int64_t count = 0, most = 0, least = seqlen;
      for (int rank = 0; rank < ranks; ++rank) {
        const std::int64_t rows = placement.rows(rank);
        count += positions_of(placement.pieces(rank), rows, all);
        most = std::max(most, rows);
        least = std::min(least, rows);
      }
      EXPECT_EQ(count, seqlen);
      EXPECT_EQ(static_cast<std::int64_t>(all.size()), seqlen) << to_string(mode);
      EXPECT_EQ(*all.rbegin(), seqlen - 1);
      // Shards have as many granules as others, or one fewer, and the last may be short.
      EXPECT_LE(mode == PlacementMode::balanced ? most - least : 0, 2 * granule);
      EXPECT_EQ(placement.digest(), place(work, ranks, options).digest());
    }
  }
}

TEST(Placement, NeedsAreThoseOfRows) {
  std::mt19937 rng(static_cast<unsigned>(reference::test_seed()));
  const std::vector<std::int64_t> documents = {100, 0, 412, 37, 451};
  const std::int64_t seqlen = 1000;
  const PlacementWork work = work_of_mask(mask::causal(), seqlen, 64, documents);
  const Placement placement = place(work, 3);
  std::int64_t begin = 0;
  std::vector<std::int64_t> first_key;
  for (const std::int64_t length : documents) {
    first_key.insert(first_key.end(), static_cast<std::size_t>(length), begin);
    begin += length;
  }
  for (int rank = 0; rank < 3; ++rank) {
    std::set<std::int64_t> wanted, needed;
    std::int64_t remote = 0;
    for (const IndexRange& run : placement.runs(rank))
      for (std::int64_t q = run.begin; q < run.end; ++q)
        for (std::int64_t k = first_key[static_cast<std::size_t>(q)]; k <= q; ++k) wanted.insert(k / 64);
    for (const IndexRange& range : placement.needs[static_cast<std::size_t>(rank)])
      for (std::int64_t i = range.begin; i < range.end; ++i) needed.insert(i);
    EXPECT_EQ(needed, wanted);
    for (const std::int64_t i : wanted)
      if (placement.owners[static_cast<std::size_t>(i)] != rank)
        remote += std::min<std::int64_t>(64, seqlen - 64 * i);
    EXPECT_EQ(placement.remote_rows(rank), remote);
  }
}

TEST(Placement, WorkIsThatOfRows) {
  std::mt19937 rng(static_cast<unsigned>(reference::test_seed()));
  const auto below = [&](int bound) { return static_cast<int>(rng() % static_cast<unsigned>(bound)); };
  for (int round = 0; round < 30; ++round) {
    const int granule = 16 * (1 + below(12)), left = below(400), right = below(90), prefix = 1 + below(500);
    const std::int64_t seqlen = 1 + below(1500);
    const std::string texts[] = {"causal", fmt::format("window({}, {})", left, right),
                                 fmt::format("causal && (window({}, 0) || prefix({}))", left, prefix),
                                 fmt::format("window({}, {}) && prefix({})", left, right, prefix),
                                 fmt::format("prefix({})", prefix)};
    const Mask mask = parse_mask(texts[below(5)]);
    const std::vector<std::int64_t> documents =
        below(2) == 0 ? random_documents(rng, seqlen, 300) : std::vector<std::int64_t>{seqlen};
    const PlacementWork work = work_of_mask(mask, seqlen, granule, documents);
    std::vector<std::set<std::int64_t>> needs(static_cast<std::size_t>(work.granules()));
    std::vector<double> costs(needs.size());
    std::set<std::int64_t> tiles;  // of 128 keys, for rows of one granule that are at most 128
    std::int64_t tile_begin = 0, begin = 0;
    for (const std::int64_t length : documents) {
      const Extents sizes{.batch = 1, .seqlen_q = length, .seqlen_kv = length, .heads_q = 1, .heads_kv = 1};
      for (std::int64_t row = begin; row < begin + length; ++row) {
        const auto i = static_cast<std::size_t>(row / granule);
        const KeyRange keys = row_keys(mask, sizes, row - begin).value();
        for (std::int64_t k = begin + keys.begin; k < begin + keys.end; ++k) {
          needs[i].insert(k / granule);
          tiles.insert(k / 128);
        }
        const std::int64_t in_granule = (row + 1) % granule, next = row + 1;
        if (in_granule % 128 != 0 && next != seqlen) continue;
        costs[i] += static_cast<double>(tiles.size()) * 128 * static_cast<double>(next - tile_begin);
        tiles.clear();
        tile_begin = next;
      }
      begin += length;
    }
    EXPECT_EQ(work.costs, costs) << mask.to_string();
    for (std::size_t i = 0; i < needs.size(); ++i) {
      std::set<std::int64_t> found;
      for (const IndexRange& range : work.needs_of(static_cast<std::int64_t>(i)))
        for (std::int64_t granule_of_keys = range.begin; granule_of_keys < range.end; ++granule_of_keys)
          EXPECT_TRUE(found.insert(granule_of_keys).second);
      EXPECT_EQ(found, needs[i]) << mask.to_string() << ", granule " << i;
    }
  }
}

// The least imbalance that any way of dealing out has, with as many granules for each rank as contiguous shards have.
double least_imbalance(const PlacementWork& work, int ranks, std::vector<int> owners) {
  std::sort(owners.begin(), owners.end());
  double least = 1e30;
  do {
    std::vector<double> loads(static_cast<std::size_t>(ranks));
    for (std::size_t i = 0; i < owners.size(); ++i)
      loads[static_cast<std::size_t>(owners[i])] += work.costs[i];
    least = std::min(least, *std::max_element(loads.begin(), loads.end()));
  } while (std::next_permutation(owners.begin(), owners.end()));
  double sum = 0;
  for (const double cost : work.costs) sum += cost;
  return least * ranks / sum;
}

TEST(Placement, IsNearTheBestOfFewGranules) {
  std::mt19937 rng(static_cast<unsigned>(reference::test_seed()));
  double worst = 1, sum = 0;
  constexpr int rounds = 200;
  for (int round = 0; round < rounds; ++round) {
    const int count = 2 + static_cast<int>(rng() % 7), ranks = 2 + static_cast<int>(rng() % 2);
    PlacementWork work{.seqlen = count * 16, .granule = 16, .first = {0}};
    for (int i = 0; i < count; ++i) {
      work.costs.push_back(1 + static_cast<double>(rng() % 100));
      work.needs.push_back({0, i + 1});
      work.first.push_back(i + 1);
    }
    const Placement plain = place(work, ranks, {.mode = PlacementMode::contiguous});
    const Placement balanced = place(work, ranks, {.tolerance = 1});
    const double best = least_imbalance(work, ranks, plain.owners);
    EXPECT_GE(balanced.imbalance(), best - 1e-9);
    EXPECT_LE(balanced.imbalance(), plain.imbalance() + 1e-9);
    worst = std::max(worst, balanced.imbalance() / best);
    sum += balanced.imbalance() / best;
  }
  EXPECT_LE(worst, 1.35);
  EXPECT_LE(sum / rounds, 1.05);
}

TEST(Placement, BalancesMasksWithinTolerance) {
  for (const int ranks : {2, 3, 8, 64}) {
    const std::int64_t seqlen = ranks * 8192 + 13;
    for (const Mask& mask : {mask::causal(), mask::causal() && mask::sliding_window(4095), Mask()}) {
      const PlacementWork work = work_of_mask(mask, seqlen, 128);
      EXPECT_LE(place(work, ranks).imbalance(), 1.02) << mask.to_string() << ", " << ranks << " ranks";
    }
  }
}

TEST(Placement, BalancesDocumentsWithFewCopies) {
  std::mt19937 rng(static_cast<unsigned>(reference::test_seed()));
  for (const double median : {1000.0, 4000.0}) {
    double balanced = 0, imbalance = 0, plain = 0;
    constexpr int rounds = 10, ranks = 8;
    const std::int64_t seqlen = ranks * 8192;
    for (int round = 0; round < rounds; ++round) {
      const PlacementWork work =
          work_of_mask(mask::causal(), seqlen, 128, random_documents(rng, seqlen, median));
      const auto worst = [&](const Placement& placement) {
        std::int64_t most = 0;
        for (int rank = 0; rank < ranks; ++rank) most = std::max(most, placement.remote_rows(rank));
        return static_cast<double>(most) / (seqlen - seqlen / ranks);
      };
      const Placement placement = place(work, ranks);
      balanced += worst(placement) / rounds;
      imbalance += placement.imbalance() / rounds;
      plain += place(work, ranks, {.mode = PlacementMode::contiguous}).imbalance() / rounds;
    }
    RecordProperty("needed", std::to_string(balanced));
    std::printf("median %.0f: slowest/mean %.3f (contiguous %.2f), worst rank needs %.2f of an all-gather\n",
                median, imbalance, plain, balanced);
    EXPECT_LE(imbalance, 1.021);
    EXPECT_GE(plain, 1.3);
    EXPECT_LE(balanced, 0.70);
  }
}

TEST(Placement, RegularShardsAreOnePiece) {
  const PlacementWork work = work_of_mask(Mask(), 1024, 16);
  const Placement striped = place(work, 4, {.mode = PlacementMode::striped, .stripe = 2});
  EXPECT_EQ(striped.pieces(1),
            (std::vector<PositionPiece>{{.row = 0, .position = 32, .run = 32, .stride = 128}}));
  const Placement zigzag = place(work, 4, {.mode = PlacementMode::zigzag});
  EXPECT_EQ(zigzag.pieces(1),
            (std::vector<PositionPiece>{{.row = 0, .position = 128, .run = 128, .stride = 640}}));
}

TEST(Placement, ChunksAreAsGiven) {
  const PlacementWork work = work_of_mask(mask::causal(), 100, 16);
  const PlacementOptions options{.mode = PlacementMode::chunks,
                                 .chunks = {{{32, 100}}, {{0, 16}, {16, 32}}, {}}};
  const Placement placement = place(work, 3, options);
  EXPECT_EQ(placement.rows(0), 68);
  EXPECT_EQ(placement.remote_rows(0), 32);
  EXPECT_EQ(placement.rows(2), 0);
  EXPECT_TRUE(placement.pieces(2).empty());
  EXPECT_EQ(placement.show(), R"(100 tokens in granules of 16, 3 ranks, chunks: slowest/mean 2.040
   0 --#####  68 tokens, load 2.040, needs 32 keys of others
   1 ##.....  32 tokens, load 0.960, needs 0 keys of others
   2 .......  0 tokens, load 0.000, needs 0 keys of others
)");
}

TEST(Placement, BlockTablesSayTheSameAsRows) {
  const PlacementWork rows = work_of_mask(mask::causal(), 1000, 128);
  std::vector<std::uint8_t> classes;
  for (int row = 0; row < 8; ++row)
    for (int column = 0; column < 8; ++column) classes.push_back(column < row ? 2 : column == row ? 1 : 0);
  const PlacementWork blocks = work_of_blocks(classes, 1000, 128);
  EXPECT_EQ(blocks.costs, rows.costs);
  EXPECT_EQ(place(blocks, 3).digest(), place(rows, 3).digest());
}

std::string refusal_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.message();
  }
  return "";
}

TEST(Placement, RefusesWhatItDoesNotServe) {
  const PlacementWork work = work_of_mask(mask::causal(), 100, 16);
  const auto chunks = [&](std::vector<std::vector<IndexRange>> given) {
    return refusal_of([&] { place(work, 2, {.mode = PlacementMode::chunks, .chunks = given}); });
  };
  EXPECT_EQ(chunks({{{0, 48}}}), "chunks: are of 1 ranks, and there are 2");
  EXPECT_EQ(chunks({{{0, 48}}, {{32, 100}}}), "chunks: ranks 0 and 1 both have position 32");
  EXPECT_EQ(chunks({{{0, 48}}, {{64, 100}}}), "chunks: no rank has position 48");
  EXPECT_NE(chunks({{{0, 40}}, {{40, 100}}}).find("multiples of the granule, 16"), std::string::npos);
  EXPECT_EQ(refusal_of([&] { place(work, 0); }), "ranks: is 0; there must be from 1 to 65536");
  EXPECT_EQ(refusal_of([] { work_of_mask(Mask(), 0); }), "seqlen: is 0; it must be from 1 to 2^31 − 1");
  EXPECT_NE(refusal_of([] { work_of_mask(Mask(), 64, 24); }).find("granule: is 24"), std::string::npos);
  EXPECT_NE(refusal_of([] { work_of_mask(mask::document(), 64); }).find("mask: document keeps keys"),
            std::string::npos);
  const std::int64_t lengths[] = {30, 30};
  EXPECT_EQ(refusal_of([&] { work_of_mask(Mask(), 64, 16, lengths); }),
            "documents: have 60 tokens together, and seqlen is 64; they must be equal");
  EXPECT_NE(
      refusal_of([] { work_of_blocks(std::vector<std::uint8_t>(3), 64); }).find("block_table: has 3 blocks"),
      std::string::npos);
}

// Milliseconds of CPU time that `f` takes, the least of three runs: wall time would count other processes, too.
template <class F>
double least_cpu_time(const F& f) {
  double least = std::numeric_limits<double>::infinity();
  for (int run = 0; run < 3; ++run) {
    const std::clock_t began = std::clock();
    f();
    least = std::min(least, 1000.0 * static_cast<double>(std::clock() - began) / CLOCKS_PER_SEC);
  }
  return least;
}

TEST(Placement, TakesLittleTime) {
  std::mt19937 rng(static_cast<unsigned>(reference::test_seed()));
  for (const int ranks : {2, 8, 64}) {
    const std::int64_t seqlen = 8192 * 128;
    PlacementWork causal;
    const double work_time = least_cpu_time([&] { causal = work_of_mask(mask::causal(), seqlen, 128); });
    for (const PlacementWork& work :
         {causal, work_of_mask(mask::causal(), seqlen, 128, random_documents(rng, seqlen, 4000))}) {
      Placement placement;
      const double took = least_cpu_time([&] { placement = place(work, ranks); });
      std::printf("8,192 granules, %d ranks: %.2f ms (work %.1f ms), slowest/mean %.3f\n", ranks, took,
                  work_time, placement.imbalance());
      EXPECT_LT(took + work_time, 20) << "far above what it takes";
    }
  }
}

}  // namespace
}  // namespace jit
