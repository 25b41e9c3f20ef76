// How the parts of a unit come together: the block that is done last merges what all have come to.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "ptx/atomic.cuh"
#include "split_keys/block_results.cuh"
#include "split_keys/part_note.cuh"
#include "split_keys/split_params.cuh"

namespace jit {

/// Of a unit of many parts, groups of so many are merged first, by different blocks.
inline constexpr int parts_of_group = 16;
inline constexpr int most_parts_without_groups = 2 * parts_of_group;

/// Counts one more of `count`, by all threads of a team, whose writes before are there for the team that counts last.
/// Returns whether this is that one. Wraps at the last, which leaves 0 for the next kernel. `ticket` is a word in shared
/// memory that the team's threads have read.
template <class Team>
__device__ __forceinline__ bool is_last_of(unsigned* counter, int count, const Team& team, unsigned* ticket) {
  const unsigned last = static_cast<unsigned>(count) - 1;
  // Release and acquire are the team's: they take in what lies behind its barriers.
  team.sync();
  if (team.thread == 0) *ticket = atomic_inc_acq_rel(counter, last);
  team.sync();
  return *ticket == last;
}

/// Counts a part of a unit, whose result the team has left in its place. The last one merges the parts, always in the
/// order of keys, and stores the rows. A Team has a `thread`, a number of `threads`, and `sync()`.
template <class Config, int tile_rows, class Team>
__device__ __forceinline__ void merge_parts(const AttentionParams& params, const SplitParams& split,
                                            const PartNote& note, const Team& team, unsigned* ticket) {
  const BlockResults<Config, tile_rows> results(split, note);
  int place = 0, count = note.parts;  // of the results that are merged in the end
  if (count > most_parts_without_groups) {
    const int group = note.part / parts_of_group, first = group * parts_of_group;
    const int members = minimum(parts_of_group, note.parts - first);
    place = note.parts;
    count = (note.parts + parts_of_group - 1) / parts_of_group;
    unsigned* const counter = split.group_counter(note.first_block + maximum(first, 1));
    if (!is_last_of(counter, members, team, ticket)) return;
    for_each_piece<Config, tile_rows, Team::threads>(note, team.thread, [&](int row, int column) {
      results.put(place + group, row, column, merge(results, first, members, row, column));
    });
  }
  if (!is_last_of(split.unit_counter(note.first_block), count, team, ticket)) return;
  for_each_piece<Config, tile_rows, Team::threads>(note, team.thread, [&](int row, int column) {
    store_piece<Config>(params, note, row, column, merge(results, place, count, row, column));
  });
}

}  // namespace jit
