// The end of a split of a work tile: its partial results are merged by all blocks of the work tile
// (split_keys/merge_shares.cuh), or by one (split_keys/merge_splits.cuh, split_keys/span_results.cuh). A Team has a
// `thread`, a number of `threads`, and `sync()`.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "split_keys/merge_shares.cuh"
#include "split_keys/merge_splits.cuh"
#include "split_keys/span_results.cuh"
#include "split_keys/split_info.cuh"
#include "split_keys/split_params.cuh"

namespace jit {

/// Ends a split. The team has stored its rows if it has the work tile alone, else its partial result. `asked` is the
/// result of all_begun(). By a team whose threads share `info`.
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
