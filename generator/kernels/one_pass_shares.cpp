// Distribution of KV heads and key tiles over the blocks of one-pass kernels.
#include <algorithm>
#include <cmath>

#include <jit/spec_table.h>

#include "generator/functors/functor_node.h"
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

namespace {

// Heads that together have 1.5 tiles for each multiprocessor.
int fewest_heads(int key_tiles, int sm_count) {
  constexpr double tiles_per_block = 1.5;
  return static_cast<int>(std::ceil(tiles_per_block * sm_count / key_tiles));
}

// The size of groups of nearly equal size, of at least `fewest` heads.
int even_groups(int heads, int fewest) {
  const int groups = std::max(1, heads / fewest);
  return (heads + groups - 1) / groups;
}

}  // namespace

bool shares_heads(const AttentionSpec& spec) {
  return is_plain(spec) && (spec.mask == mask::none() || spec.key_arrivals);
}

int heads_scheduled_together(const AttentionSpec& spec, int heads, int key_tiles, int sm_count) {
  if (!drops_keys(spec) || heads == 0 || key_tiles == 0) return 1;
  constexpr int heads_of_documents = 16;  // short rounds of tiles, which more heads keep apart
  if (has_documents(spec.mask)) return even_groups(heads, heads_of_documents);
  const int fewest = fewest_heads(key_tiles, sm_count);
  // Limits of the imbalance, the share of a head's longest tile in a block's work under a causal mask: many short
  // heads together, whose tiles begin and end at the same time, cost more than a little of it (docs/records/notebook.md).
  constexpr int few_heads = 8;
  const double little = fewest <= few_heads ? 0.05 : 0.11;
  if (2.0 * sm_count / (static_cast<double>(heads) * (key_tiles + 1)) < little) return 1;
  return even_groups(heads, fewest);
}

DrawnHeads heads_drawn(const AttentionSpec& spec, int heads, int key_tiles, int sm_count) {
  if (heads == 0 || key_tiles == 0) return {};
  const int fewest = fewest_heads(key_tiles, sm_count);
  if (is_plain(spec)) {
    const int from_last = heads - std::min(2 * fewest, heads / 2);
    return {even_groups(from_last, fewest), from_last};
  }
  constexpr int blocks_of_head = 4;
  const int most = std::max(1, sm_count / blocks_of_head), groups = (heads + most - 1) / most;
  return {(heads + groups - 1) / groups, 0};
}

}  // namespace jit::one_pass
