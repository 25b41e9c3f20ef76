// Merges the splits of a work tile with many rows: its blocks write their partial results to the mailbox, then each
// block merges a share of the column slices of all rows, from all splits.
//
// As in split_keys/merge_splits.cuh, written words are never empty, so readers need no counter and no fence. One warp reads
// each word, and resets it to empty.
//
// A block merges only its last work tile. All blocks of the work tile do so, except the last one if it goes on with the
// next work tile. So a block has computed all of its own splits before it waits.
//
// Blocks wait only for blocks that have begun; otherwise, next to another kernel, waiting blocks could occupy the SMs
// that the others need. The first block of the work tile begins last (TileSpaceBlock), and signals when it begins. A
// block that has written its split before that signal does not wait: it leaves its share to the first block.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "ptx/relaxed.cuh"
#include "split_keys/block_results.cuh"
#include "split_keys/merge_column_slices.cuh"
#include "split_keys/split_info.cuh"
#include "split_keys/split_params.cuh"

namespace jit {

/// Signals of a block: that it has begun, and whether it merges its share of its last work tile. Before, the words are
/// empty.
inline constexpr unsigned notice_begun = 0, notice_merges = 0, notice_leaves = 1;

JIT_DEVICE unsigned* begun_notice(const SplitParams& split_params, int block) {
  return split_params.notices + 2 * block;
}
JIT_DEVICE unsigned* share_notice(const SplitParams& split_params, int block) {
  return split_params.notices + 2 * block + 1;
}

/// Signals that the block has begun. By a team, when it begins a split.
template <class Config>
JIT_DEVICE void signal_begun(const SplitParams& split_params, const SplitInfo& info, int thread) {
  if (all_blocks_merge<Config> && info.is_cut && thread == 0)
    store_relaxed(begun_notice(split_params, info.first_block + info.split), notice_begun);
}

/// Whether all blocks of the work tile have begun, so that the block may wait for them; valid in thread 0 of a team.
/// Called before the team writes its split, which hides the latency of the load.
template <class Config>
JIT_DEVICE bool all_begun(const SplitParams& split_params, const SplitInfo& info, int thread) {
  if (!all_blocks_merge<Config> || thread != 0) return false;
  return info.split == 0 || (info.split < info.mergers &&
                             load_relaxed(begun_notice(split_params, info.first_block)) == notice_begun);
}

/// Shares that blocks of a work tile leave to its first block, which reads the signals of all. By a whole warp; all
/// lanes, and other warps, return the same results.
class DelegatedShares {
 public:
  JIT_DEVICE DelegatedShares(const SplitParams& split_params, const SplitInfo& info)
      : split_params_(split_params), info_(info) {}

  /// Finds the next share; false if there is none. Waits for the signals of all blocks.
  JIT_DEVICE bool next(int& share) {
#pragma unroll 1
    while (left_ == 0) {
      if (asked_ >= info_.mergers) return false;
      const int block = asked_ + lane_id();
      const unsigned* const word =
          share_notice(split_params_, info_.first_block + minimum(block, info_.mergers - 1));
      unsigned notice;
      do notice = load_relaxed(word);
      while (__any_sync(full_warp, is_empty(notice)) != 0);  // lanes stay together: see merge_column_slices
      left_ = __ballot_sync(full_warp, block < info_.mergers && notice == notice_leaves);
      first_ = asked_;
      asked_ += warp_size;
    }
    share = first_ + __ffs(static_cast<int>(left_)) - 1;
    left_ &= left_ - 1;
    return true;
  }

 private:
  const SplitParams& split_params_;
  const SplitInfo& info_;
  int asked_ = 1, first_ = 0;
  unsigned left_ = 0;
};

/// Merges share `share` of a work tile, one of info.mergers equal ones. By a team whose block has written its split.
template <class Config, int tile_rows, class Team, class F>
JIT_DEVICE void merge_share(const BlockResults<Config>& results, const SplitInfo& info, const Team& team,
                            int share, F f) {
  using Results = BlockResults<Config>;
  const int column_slices = rows_of<Config, tile_rows>(info) * Results::column_slices;
  // mutate: SharesOfColumnSlices
  const int begin = column_slices * share / info.mergers, end = column_slices * (share + 1) / info.mergers;
  if (begin == end) return;
    // Polls one word of each split first: polling all words would delay the blocks that are still writing.
#pragma unroll 1
  for (int split = team.thread; split < info.splits; split += Team::threads) {
    const float* const state = results.state(split, begin / Results::column_slices,
                                             begin % Results::column_slices * Results::column_slice);
    while (is_empty(__float_as_uint(load_relaxed(reinterpret_cast<const float2*>(state)).x))) {
    }
  }
  team.sync();
  merge_column_slices<Config>(results, team, info.splits, begin, end, f);
}

/// Merges the block's share of a shared work tile, and stores its rows. `asked` is the result of all_begun(). By a team
/// whose threads share `info`.
template <class Config, int tile_rows, class Team>
JIT_DEVICE void merge_work_tile(const AttentionParams& params, const SplitParams& split_params,
                                const SplitInfo& info, const Team& team, bool asked) {
  const bool is_first = info.split == 0;
  if (team.thread == 0) {
    info.merges = asked;
    if (!is_first)
      store_relaxed(share_notice(split_params, info.first_block + info.split),
                    asked ? notice_merges : notice_leaves);
  }
  team.sync();
  if (!info.merges) return;
  const BlockResults<Config> results(split_params, info);
  DelegatedShares left(split_params, info);
  int share = info.split;
#pragma unroll 1
  do {
    merge_share<Config, tile_rows>(results, info, team, share,
                                   [&](int row, int column, const RowPiece& piece) {
                                     store_piece<Config>(params, info, row, column, piece);
                                   });
  } while (is_first && left.next(share));  // mutate: SharesThatAreLeftStay
  if (!is_first) return;
  team.sync();  // all threads have read the signals
#pragma unroll 1
  for (int block = 1 + team.thread; block < info.mergers; block += Team::threads)
    // mutate: NoticesOfSharesStay
    store_relaxed(share_notice(split_params, info.first_block + block), empty_word);
}

/// Ends a split, which is in the mailbox if blocks share the work tile: merges the block's share if this is the block's
/// last split.
template <class Config, int tile_rows, class Team>
JIT_DEVICE void merge_shares(const AttentionParams& params, const SplitParams& split_params,
                             const SplitInfo& info, const Team& team, bool asked) {
  if (!info.is_cut || info.split >= info.mergers) return;
  if (info.splits > 1) merge_work_tile<Config, tile_rows>(params, split_params, info, team, asked);
  // mutate: BlocksHaveBegun
  if (team.thread == 0) store_relaxed(begun_notice(split_params, info.first_block + info.split), empty_word);
}

}  // namespace jit
