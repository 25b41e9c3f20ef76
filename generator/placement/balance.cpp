#include "generator/placement/balance.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>

namespace jit {
namespace {

using Bits = std::vector<std::uint64_t>;

void set_range(Bits& bits, std::int64_t begin, std::int64_t end) {
  const auto word_of = [](std::int64_t i) { return static_cast<std::size_t>(i / 64); };
  if (begin >= end) return;
  const std::size_t first = word_of(begin), last = word_of(end - 1);
  const std::uint64_t from = ~std::uint64_t{0} << (begin % 64),
                      to = ~std::uint64_t{0} >> (63 - (end - 1) % 64);
  if (first == last) {
    bits[first] |= from & to;
    return;
  }
  bits[first] |= from;
  std::fill(bits.begin() + static_cast<std::ptrdiff_t>(first) + 1,
            bits.begin() + static_cast<std::ptrdiff_t>(last), ~std::uint64_t{0});
  bits[last] |= to;
}

/// Some granules that follow each other in a rank's list.
struct Window {
  std::size_t begin, length;
  double cost;
};

struct Swap {
  Window of_heavy, of_light;
  double moved;  // of the heavy rank's load
};

/// Lists of granules by rank, what they cost and need.
class Balancer {
 public:
  Balancer(const PlacementWork& work, int ranks, std::vector<int>& owners)
      : work_(work),
        owners_(owners),
        words_(static_cast<std::size_t>(work.granules() + 63) / 64),
        ranks_(static_cast<std::size_t>(ranks)),
        window_needs_{Bits(words_), Bits(words_)},
        window_granules_{Bits(words_), Bits(words_)} {
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
      // The lightest rank may have nothing that fits, such as an empty shard.
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
    std::vector<double> sums;            // of costs up to each of them
    double load = 0;
    Bits own, needs;
  };

  void update(Rank& rank) {
    rank.own.assign(words_, 0);
    rank.needs.assign(words_, 0);
    rank.sums.assign(1, 0);
    for (const std::int64_t granule : rank.granules) {
      rank.sums.push_back(rank.sums.back() + work_.costs[static_cast<std::size_t>(granule)]);
      set_range(rank.own, granule, granule + 1);
    }
    rank.load = rank.sums.back();
    add_needs(rank.granules.data(), rank.granules.size(), rank.needs);
  }

  // From the last granule on: needs of causal ones lie within those of the one before.
  void add_needs(const std::int64_t* granules, std::size_t count, Bits& bits) const {
    IndexRange known{};
    while (count-- > 0)
      for (const IndexRange& range : work_.needs_of(granules[count])) {
        if (known.begin <= range.begin && range.end <= known.end) continue;
        set_range(bits, range.begin, range.end);
        known = range;
      }
  }

  // Windows of so many granules, at most `most` of them, evenly spread.
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
    const double wanted = std::min(heavy.load - mean_, mean_ - light.load), near = 0.01 * mean_;
    std::vector<Window> of_heavy, of_light;
    near_.clear();
    std::optional<Swap> best;
    double best_error = std::numeric_limits<double>::infinity();
    const std::size_t most = std::min(heavy.granules.size(), light.granules.size());
    for (std::size_t length = 1; length <= most; length *= 2) {
      windows_of(heavy, length, of_heavy);
      windows_of(light, length, of_light);
      std::stable_sort(of_light.begin(), of_light.end(),
                       [](const Window& a, const Window& b) { return a.cost < b.cost; });
      for (const Window& window : of_heavy) {
        const auto above = std::lower_bound(of_light.begin(), of_light.end(), window.cost - wanted,
                                            [](const Window& a, double cost) { return a.cost < cost; });
        for (auto other = above == of_light.begin() ? above : above - 1;
             other != of_light.end() && other <= above; ++other) {
          const Swap swap{window, *other, window.cost - other->cost};
          const double error = std::abs(swap.moved - wanted);
          // A swap that moves too little never ends, and one that moves more turns the ranks around.
          if (swap.moved <= 1e-6 * mean_ || swap.moved >= heavy.load - light.load) continue;
          if (error <= near) near_.push_back(swap);
          if (error < best_error) best = swap, best_error = error;
        }
      }
    }
    return near_.empty() ? best : least_copies(heavy, light);
  }

  // Swaps that serve alike are compared by copies, at most so many of them.
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

  // Granules of keys that both ranks copy after a swap, in which each still needs what it gives away.
  std::int64_t copies_after(const Rank& heavy, const Rank& light, const Swap& swap) {
    const Window* windows[] = {&swap.of_heavy, &swap.of_light};
    const Rank* ranks[] = {&heavy, &light};
    for (int i = 0; i < 2; ++i) {
      const std::int64_t* const granules = ranks[i]->granules.data() + windows[i]->begin;
      std::fill(window_needs_[i].begin(), window_needs_[i].end(), 0);
      std::fill(window_granules_[i].begin(), window_granules_[i].end(), 0);
      add_needs(granules, windows[i]->length, window_needs_[i]);
      for (std::size_t j = 0; j < windows[i]->length; ++j)
        set_range(window_granules_[i], granules[j], granules[j] + 1);
    }
    std::int64_t copies = 0;
    for (int i = 0; i < 2; ++i)
      for (std::size_t word = 0; word < words_; ++word) {
        const std::uint64_t own =
            (ranks[i]->own[word] & ~window_granules_[i][word]) | window_granules_[1 - i][word];
        copies += std::popcount((ranks[i]->needs[word] | window_needs_[1 - i][word]) & ~own);
      }
    return copies;
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
  std::size_t words_;
  std::vector<Rank> ranks_;
  Bits window_needs_[2], window_granules_[2];
  std::vector<Swap> near_;  // swaps that move nearly what is wanted
  double mean_ = 0;
};

}  // namespace

void balance(const PlacementWork& work, int ranks, double tolerance, std::vector<int>& owners) {
  if (ranks > 1) Balancer(work, ranks, owners).run(tolerance);
}

}  // namespace jit
