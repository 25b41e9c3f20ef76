// The mask and score functors of a consumer's scores, which are those of 64 queries.
#pragma once

#include "base/prelude.cuh"
#include "problem/functor.cuh"
#include "problem/masks.cuh"
#include "problem/whole_functor.cuh"
#include "ptx/warpgroup.cuh"
#include "scheduling/tile_sequences.cuh"
#include "steps/apply_functors.cuh"
#include "steps/score_bits.cuh"
#include "tiles/accumulator.cuh"
#include "tiles/panel_tile.cuh"

namespace jit {

/// The bits of a consumer's scores in shared memory. `words` are those of all consumers; 0: there are none.
template <class Traits, class Within>
JIT_DEVICE SharedScoreBits<Within> shared_bits_of_consumer(const Within& within, unsigned words, int consumer,
                                                           int thread) {
  constexpr unsigned from_64_keys = score_words(Traits::Config::tile_q, score_word_keys) * 4;
  // mutate: TheFirstConsumersQueries
  const unsigned own = words + (consumer * warpgroup_size + thread) * 4;
  return {within, words == 0 ? 0 : own, from_64_keys};
}

/// The thread's index in its consumer. With positions by a shuffle, which stays where it is: ptxas would compute the rows of
/// partial tiles ahead of the branch to these, between two products, and products wait for one another meanwhile.
template <class Mask, class Score>
JIT_DEVICE int thread_of_functors() {
  const int thread = reread_thread_index() % warpgroup_size;
  if constexpr (!is_positioned<Mask> && !is_positioned<Score>) return thread;
  return __shfl_sync(full_warp, thread, reread_lane());
}

/// Leaves the scores of a consumer as the mask and score functors want them. `queries` is its ConsumerQueries, and `keys`
/// its place in the tiles of keys.
template <class Traits, class Queries, class Keys>
JIT_DEVICE void apply_functors_of_consumer(typename Traits::Scores& scores, Queries& queries,
                                           const Keys& keys, int consumer) {
  using Mask = TileMask<typename Traits::Config>;
  using Score = typename Traits::Config::Score;
  queries.scale(scores, keys.scales());
  if (Score::is_identity && !keys.is_partial()) return;
  const int thread = thread_of_functors<Mask, Score>();
  const int q = queries.work().q_begin + consumer * rows_per_warpgroup + thread / warp_size * 16 +
                MmaLayout::lane_row(thread);
  const int k = keys.first_key() + MmaLayout::lane_column(thread);
  const unsigned words = keys.words() + MmaLayout::lane_column(thread) * 4;
  const ScorePlace place{q, k, words};
  const BlockContext here = queries.context();
  const auto write = [&](const auto& mask) {
    apply_functors<MaskQuery::shortest>(scores, place, queries.score(), queries.scales().of_scores(), mask,
                                        here, keys.is_partial());
  };
  if constexpr (Traits::has_mask_bits) {
    write(shared_bits_of_consumer<Traits>(Mask(here).within, keys.mask_bits(), consumer, thread));
  } else {
    write(Mask(here));
  }
}

}  // namespace jit
