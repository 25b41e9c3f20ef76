#include "templates/backward/visits.cuh"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/host_functors.h"
#include "tests/support/seed.h"

namespace jit::backward_wgmma {
namespace {

struct Step {
  int head;  // KV head
  int key_tile;
  int query_head;
  int query_tile;
};

// Blocks that share heads, one after another, and which tiles of keys add to which tiles of queries.
struct Launch {
  HeadVisits visits;
  int heads;        // that the same blocks have
  int query_heads;  // of each
  int key_tiles;
  std::vector<std::vector<bool>> adds;  // of tiles of keys at tiles of queries

  // The tile of keys of a block in a round: there and back.
  int key_tile(int block, int round, int rounds_before) const {
    const bool reversed = (rounds_before + round) % 2 != 0;
    return round * visits.sharers + (reversed ? visits.sharers - 1 - block : block);
  }

  std::vector<Step> steps(int block) const {
    std::vector<Step> all;
    for (int head = 0; head < heads; ++head) {
      for (int round = 0; round < visits.rounds; ++round) {
        const int key = key_tile(block, round, head * visits.rounds);
        if (key >= key_tiles) continue;
        const Visits own = visits.visits(key, visits.begins_backward(head));
        for (int query_head = 0; query_head < query_heads; ++query_head) {
          for (int place = 0; place < visits.query_tiles; ++place) {
            const int tile = own.query_tile(place);
            if (adds[key][tile]) all.push_back({head, key, query_head, tile});
          }
        }
      }
    }
    return all;
  }

  int before(const Step& step) const {
    const bool backward = visits.begins_backward(step.head);
    const int own = visits.round(step.key_tile);
    int count = 0;
    for (int other = 0; other < key_tiles; ++other) {
      if (!adds[other][step.query_tile]) continue;
      if (visits.round(other) < own ||
          (visits.round(other) == own &&
           visits.is_before(other, step.key_tile, step.query_head, step.query_tile, backward)))
        ++count;
    }
    return count;
  }
};

// The steps of all blocks, where each step takes 1 and an addition is seen `lag` later: when the last one ends, or −1 if
// nobody can go on. Each turn must be somebody's, once.
double run(const Launch& launch, double lag) {
  std::vector<std::vector<Step>> steps;
  std::vector<std::size_t> done(launch.visits.sharers, 0);
  std::vector<double> now(launch.visits.sharers, 0);
  for (int block = 0; block < launch.visits.sharers; ++block) steps.push_back(launch.steps(block));
  const auto sums = static_cast<std::size_t>(launch.heads) * launch.query_heads * launch.visits.query_tiles;
  std::vector<int> additions(sums, 0);
  std::vector<double> seen(sums, 0);
  while (true) {
    bool any_left = false, any_went = false;
    for (int block = 0; block < launch.visits.sharers; ++block) {
      if (done[block] == steps[block].size()) continue;
      any_left = true;
      const Step& step = steps[block][done[block]];
      const auto at = (static_cast<std::size_t>(step.head) * launch.query_heads + step.query_head) *
                          launch.visits.query_tiles +
                      step.query_tile;
      if (additions[at] != launch.before(step)) continue;
      any_went = true;
      now[block] = std::max(now[block], seen[at]) + 1;
      seen[at] = now[block] + lag - 1;
      ++additions[at];
      ++done[block];
    }
    if (!any_left) return *std::max_element(now.begin(), now.end());
    if (!any_went) return -1;
  }
}

Launch launch_of(int query_tiles, int key_tiles, int sharers, int query_heads = 1, int heads = 2) {
  Launch launch{.visits = {.query_tiles = query_tiles,
                           .sharers = sharers,
                           .heads_at_once = 1,
                           .rounds = (key_tiles + sharers - 1) / sharers,
                           .spacing = std::max(1, query_tiles / key_tiles),
                           .is_whole = false},
                .heads = heads,
                .query_heads = query_heads,
                .key_tiles = key_tiles,
                .adds = {}};
  for (int key = 0; key < key_tiles; ++key) launch.adds.emplace_back(query_tiles, true);
  return launch;
}

TEST(Visits, PlacesAreInverse) {
  for (const int tiles : {1, 2, 7, 16}) {
    for (int first = -1; first < tiles; ++first) {
      for (const int step : {1, -1}) {
        if (step > 0 && first < 0) continue;
        const Visits visits{tiles, first, step};
        std::vector<int> visited;
        for (int place = 0; place < tiles; ++place) {
          visited.push_back(visits.query_tile(place));
          EXPECT_EQ(visits.place(visited.back()), place);
        }
        std::sort(visited.begin(), visited.end());
        for (int tile = 0; tile < tiles; ++tile) EXPECT_EQ(visited[tile], tile);
      }
    }
  }
}

// Whatever the mask leaves out, however many blocks share a head: every step is taken.
TEST(Visits, NobodyWaitsForEver) {
  reference::Random random(reference::test_seed());
  for (int i = 0; i < 400; ++i) {
    const int key_tiles = reference::draw(random, 1, 12), sharers = reference::draw(random, 1, key_tiles);
    const int query_tiles = reference::draw(random, 1, 24);
    Launch launch = launch_of(query_tiles, key_tiles, sharers, reference::draw(random, 1, 3), 3);
    launch.visits.is_whole = reference::draw(random, 0, 1) != 0;
    launch.visits.spacing = reference::draw(random, 1, 5);
    for (auto& of_key : launch.adds) {
      for (auto&& one : of_key) one = reference::draw(random, 0, 3) != 0;
    }
    EXPECT_GT(run(launch, reference::draw(random, 1, 9)), -1)
        << query_tiles << " x " << key_tiles << ", " << sharers << " sharers";
  }
}

// Where steps take as long as one another and additions are seen soon enough, they take what they would alone.
TEST(Visits, NobodyWaitsLong) {
  constexpr int key_tiles = 64, query_tiles = 128, heads = 4;
  const double whole = run(launch_of(query_tiles, key_tiles, key_tiles, 1, heads), 2);
  EXPECT_LE(whole, heads * query_tiles * 1.05);
}

}  // namespace
}  // namespace jit::backward_wgmma
