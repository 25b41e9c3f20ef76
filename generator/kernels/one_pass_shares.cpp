// Distribution of KV heads and key tiles over the blocks of one-pass kernels.
#include <algorithm>
#include <cmath>

#include "generator/functors/score_mask.h"
#include "generator/kernels/one_pass.h"
#include "templates/backward/visits.cuh"

namespace jit::one_pass {

HeadShares head_shares(int heads, int key_tiles, int sm_count, int most_sharers) {
  HeadShares best;
  if (heads == 0) return best;
  for (int sharers = 1; sharers <= std::min({key_tiles, sm_count, max_sharers}); ++sharers) {
    const int heads_at_once = std::min(heads, sm_count / sharers);
    const int rounds = (heads + heads_at_once - 1) / heads_at_once * ((key_tiles + sharers - 1) / sharers);
    if (best.rounds == 0 || rounds < best.rounds || (rounds == best.rounds && sharers <= most_sharers))
      best = {sharers, heads_at_once, rounds};
  }
  return best;
}

int heads_scheduled_together(const AttentionSpec& spec, int heads, int key_tiles, int sm_count) {
  if (!drops_keys(spec) || heads == 0 || key_tiles == 0) return 1;
  constexpr double tiles_per_block = 1.5;
  const int fewest = static_cast<int>(std::ceil(tiles_per_block * sm_count / key_tiles));
  // Limits of the imbalance, the share of a head's longest tile in a block's work under a causal mask: many short
  // heads together, whose tiles begin and end at the same time, cost more than a little of it (docs/records/notebook.md).
  constexpr int few_heads = 8;
  const double little = fewest <= few_heads ? 0.05 : 0.11;
  if (2.0 * sm_count / (static_cast<double>(heads) * (key_tiles + 1)) < little) return 1;
  const int groups = std::max(1, heads / fewest);
  return (heads + groups - 1) / groups;
}

int heads_drawn_together(int heads, int sm_count) {
  constexpr int blocks_of_head = 4;
  if (heads == 0) return 1;
  const int most = std::max(1, sm_count / blocks_of_head), groups = (heads + most - 1) / most;
  return (heads + groups - 1) / groups;
}

}  // namespace jit::one_pass
