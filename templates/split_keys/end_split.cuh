// Where a split of a work tile ends: all blocks of the work tile merge it (split_keys/merge_shares.cuh), or one does
// (split_keys/merge_splits.cuh, split_keys/span_results.cuh). A Team has a `thread`, a number of `threads`, and
// `sync()`.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "split_keys/merge_shares.cuh"
#include "split_keys/merge_splits.cuh"
#include "split_keys/span_results.cuh"
#include "split_keys/split_info.cuh"
#include "split_keys/split_params.cuh"

namespace jit {

/// Ends a split, whose results the team has stored, if it had the work tile alone, or else left for others. `asked`
/// is what may_merge() has said. By a team whose threads share `info`.
template <class Config, int tile_rows, class Team>
JIT_DEVICE void end_split(const AttentionParams& params, const SplitParams& split_params,
                          const Info<Config>& info, const Team& team, bool asked) {
  if constexpr (all_blocks_merge<Config>) {
    merge_shares<Config, tile_rows>(params, split_params, info, team, asked);
  } else if (info.splits > 1) {
    merge_splits<Config, tile_rows>(params, split_params, info, team);
  }
}

}  // namespace jit
