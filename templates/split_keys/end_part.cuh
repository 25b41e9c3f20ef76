// Where a part of a unit ends: all blocks of the unit merge it (split_keys/merge_shares.cuh), or one does
// (split_keys/merge_parts.cuh, split_keys/span_results.cuh). A Team has a `thread`, a number of `threads`, and `sync()`.
#pragma once

#include "base/descale_params.cuh"
#include "base/params.cuh"
#include "base/prelude.cuh"
#include "split_keys/merge_parts.cuh"
#include "split_keys/merge_shares.cuh"
#include "split_keys/span_note.cuh"
#include "split_keys/span_results.cuh"
#include "split_keys/split_params.cuh"

namespace jit {

/// Ends a part, whose results the team has stored, if it had the unit alone, or else left for others. `asked` is what
/// may_merge() has said. By a team whose threads share `note`.
template <class Config, int tile_rows, class Team>
__device__ __forceinline__ void end_part(const AttentionParams& params, const DescaleParams& descale,
                                         const SplitParams& split, const Note<Config>& note, const Team& team,
                                         bool asked) {
  if constexpr (all_blocks_merge<Config>) {
    merge_shares<Config, tile_rows>(params, descale, split, note, team, asked);
  } else if (note.parts > 1) {
    merge_parts<Config, tile_rows>(params, descale, split, note, team);
  }
}

}  // namespace jit
