#include "generator/placement/balance.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>

#include "generator/placement/granule_set.h"

namespace jit {
namespace {

/// Consecutive entries in a rank's list of granules.
struct Window {
  std::size_t begin, length;
  double cost;
};

struct Swap {
  Window of_heavy, of_light;
  double moved;  // of the heavy rank's load
};

/// Lists of granules by rank, with their costs and needed keys.
class Balancer {
 public:
  Balancer(const PlacementWork& work, int ranks, std::vector<int>& owners)
      : work_(work), owners_(owners), wanted_(work.granules()), ranks_(static_cast<std::size_t>(ranks)) {
    for (std::int64_t granule = 0; granule < work.granules(); ++granule)
      ranks_[static_cast<std::size_t>(owners[static_cast<std::size_t>(granule)])].granules.push_back(granule);
    for (Rank& rank : ranks_) update(rank);
    mean_ = std::accumulate(work.costs.begin(), work.costs.end(), 0.0) / ranks;
  }

  void run(double tolerance) {
    const auto by_load = [](const Rank& a, const Rank& b) { return a.load < b.load; };
    for (std::int64_t swaps = 0; swaps < 4 * work_.granules(); ++swaps) {
      Rank& heavy = *std::max_element(ranks_.begin(), ranks_.end(), by_load);
      if (heavy.load <= tolerance * mean_) return;
      // The lightest rank may have no suitable granules, such as an empty shard.
      std::vector<Rank*> lighter;
      for (Rank& rank : ranks_)
        if (rank.load < mean_ && !rank.granules.empty()) lighter.push_back(&rank);
      std::stable_sort(lighter.begin(), lighter.end(), [&](Rank* a, Rank* b) { return by_load(*a, *b); });
      bool is_done = true;
      for (Rank* light : lighter) {
        const std::optional<Swap> swap = choose(heavy, *light);
        if (!swap) continue;
        apply(heavy, *light, *swap);
        is_done = false;
        break;
      }
      if (is_done) return;
    }
  }

 private:
  struct Rank {
    std::vector<std::int64_t> granules;  // ascending
    std::vector<double> sums;            // prefix sums of costs
    double load = 0;
    GranuleSet known;                          // granules of keys that the rank owns or copies
    std::vector<std::int64_t> unknown_before;  // prefix sums of granules not in `known`, by word
  };

  void update(Rank& rank) {
    rank.known = GranuleSet(work_.granules());
    rank.sums.assign(1, 0);
    for (const std::int64_t granule : rank.granules) {
      rank.sums.push_back(rank.sums.back() + work_.costs[static_cast<std::size_t>(granule)]);
      rank.known.add({granule, granule + 1});
    }
    rank.load = rank.sums.back();
    collect_needs(rank.granules.data(), rank.granules.size());
    for (const IndexRange& range : collected_) rank.known.add(range);
    rank.unknown_before.assign(1, 0);
    for (const std::uint64_t word : rank.known.words())
      rank.unknown_before.push_back(rank.unknown_before.back() + 64 - std::popcount(word));
  }

  // Collects needs from the last granule on and merges ranges: needs of a causal granule lie within its
  // successor's.
  void collect_needs(const std::int64_t* granules, std::size_t count) {
    collected_.clear();
    while (count-- > 0)
      for (const IndexRange& range : work_.needs_of(granules[count])) {
        if (!collected_.empty() && range.begin <= collected_.back().end &&
            collected_.back().begin <= range.end)
          collected_.back() = {std::min(range.begin, collected_.back().begin),
                               std::max(range.end, collected_.back().end)};
        else
          collected_.push_back(range);
      }
  }

  // At most `most` evenly spaced windows of `length` granules.
  static void windows_of(const Rank& rank, std::size_t length, std::vector<Window>& windows) {
    constexpr std::size_t most = 96;
    const std::size_t count = rank.granules.size() - length + 1, taken = std::min(count, most);
    windows.clear();
    for (std::size_t i = 0; i < taken; ++i) {
      const std::size_t begin = taken == count ? i : i * (count - 1) / (taken - 1);
      windows.push_back({begin, length, rank.sums[begin + length] - rank.sums[begin]});
    }
  }

  std::optional<Swap> choose(const Rank& heavy, const Rank& light) {
    const double wanted = std::min(heavy.load - mean_, mean_ - light.load);
    const double near =
        std::min(0.01 * mean_, 0.5 * wanted);  // skips tiny moves, which would need many swaps
    std::vector<Window> of_heavy, of_light;
    near_.clear();
    std::optional<Swap> best;
    double best_error = std::numeric_limits<double>::infinity();
    const std::size_t most = std::min(heavy.granules.size(), light.granules.size());
    for (std::size_t length = 1; length <= most; length *= 2) {
      windows_of(heavy, length, of_heavy);
      windows_of(light, length, of_light);
      std::sort(of_light.begin(), of_light.end(), [](const Window& a, const Window& b) {
        return a.cost != b.cost ? a.cost < b.cost : a.begin < b.begin;
      });
      for (const Window& window : of_heavy) {
        const auto above = std::lower_bound(of_light.begin(), of_light.end(), window.cost - wanted,
                                            [](const Window& a, double cost) { return a.cost < cost; });
        for (auto other = above == of_light.begin() ? above : above - 1;
             other != of_light.end() && other <= above; ++other) {
          const Swap swap{window, *other, window.cost - other->cost};
          const double error = std::abs(swap.moved - wanted);
          // A move that is too small never terminates; one that is too large swaps the ranks' roles.
          if (swap.moved <= 1e-6 * mean_ || swap.moved >= heavy.load - light.load) continue;
          if (error <= near) near_.push_back(swap);
          if (error < best_error) best = swap, best_error = error;
        }
      }
    }
    return near_.empty() ? best : least_copies(heavy, light);
  }

  // The swap with the fewest copies among at most `most` nearly equal ones.
  Swap least_copies(const Rank& heavy, const Rank& light) {
    constexpr std::size_t most = 48;
    const std::size_t taken = std::min(near_.size(), most);
    std::size_t best = 0;
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    for (std::size_t i = 0; i < taken; ++i) {
      const std::size_t at = taken == 1 ? 0 : i * (near_.size() - 1) / (taken - 1);
      const std::int64_t copies = copies_after(heavy, light, near_[at]);
      if (copies < least) best = at, least = copies;
    }
    return near_[best];
  }

  // Granules of keys that the ranks newly copy after a swap.
  std::int64_t copies_after(const Rank& heavy, const Rank& light, const Swap& swap) {
    return new_copies(light, heavy, swap.of_heavy) + new_copies(heavy, light, swap.of_light);
  }

  std::int64_t new_copies(const Rank& taker, const Rank& giver, const Window& window) {
    collect_needs(giver.granules.data() + window.begin, window.length);
    constexpr std::size_t few = 8;
    if (collected_.size() > few) return new_copies_of_many(taker);
    std::sort(collected_.begin(), collected_.end(),
              [](const IndexRange& a, const IndexRange& b) { return a.begin < b.begin; });
    std::int64_t copies = 0, end = 0;
    for (const IndexRange& range : collected_) {
      const std::int64_t begin = std::max(range.begin, end);
      if (begin < range.end) copies += unknown_before(taker, range.end) - unknown_before(taker, begin);
      end = std::max(end, range.end);
    }
    return copies;
  }

  std::int64_t new_copies_of_many(const Rank& taker) {
    wanted_.clear();
    for (const IndexRange& range : collected_) wanted_.add(range);
    std::int64_t copies = 0;
    for (std::size_t word = 0; word < wanted_.words().size(); ++word)
      copies += std::popcount(wanted_.words()[word] & ~taker.known.words()[word]);
    return copies;
  }

  static std::int64_t unknown_before(const Rank& rank, std::int64_t granule) {
    const auto word = static_cast<std::size_t>(granule / 64);
    const int bit = static_cast<int>(granule % 64);
    if (bit == 0) return rank.unknown_before[word];
    return rank.unknown_before[word] + std::popcount(~rank.known.words()[word] << (64 - bit));
  }

  void apply(Rank& heavy, Rank& light, const Swap& swap) {
    const auto exchange = [&](std::size_t i) {
      std::swap(heavy.granules[swap.of_heavy.begin + i], light.granules[swap.of_light.begin + i]);
    };
    for (std::size_t i = 0; i < swap.of_heavy.length; ++i) exchange(i);
    for (Rank* rank : {&heavy, &light}) {
      std::sort(rank->granules.begin(), rank->granules.end());
      for (const std::int64_t granule : rank->granules)
        owners_[static_cast<std::size_t>(granule)] = static_cast<int>(rank - ranks_.data());
      update(*rank);
    }
  }

  const PlacementWork& work_;
  std::vector<int>& owners_;
  GranuleSet wanted_;
  std::vector<Rank> ranks_;
  std::vector<IndexRange> collected_;  // by collect_needs
  std::vector<Swap> near_;             // swaps whose move is near the wanted one
  double mean_ = 0;
};

}  // namespace

void balance(const PlacementWork& work, int ranks, double tolerance, std::vector<int>& owners) {
  if (ranks > 1) Balancer(work, ranks, owners).run(tolerance);
}

}  // namespace jit
