// How the parts of a unit of many rows come together: its blocks leave them in the mailbox, and then each merges a share of
// the strips of all rows, from all parts.
//
// As where one block merges (split_keys/merge_parts.cuh), no word that is left is empty, so that no counter and no fence
// stand between those who write and those who read. Each word is read by one warp, which leaves it empty again.
//
// Blocks merge what they work on last: all blocks of the unit, but for the last one if that goes on with the next unit. So
// nobody waits before all of its own parts are there.
//
// Blocks wait only for blocks that have begun: else those that wait could take the room of those that they wait for,
// where the GPU has another kernel's blocks, too. The first block of the unit begins last (LineBlock), and says so when it
// begins. Who has left its part earlier than that does not wait: it leaves its share to the first block.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "ptx/relaxed.cuh"
#include "split_keys/block_results.cuh"
#include "split_keys/merge_strips.cuh"
#include "split_keys/part_note.cuh"
#include "split_keys/split_params.cuh"

namespace jit {

/// What a block tells: that it has begun, and whether it merges its share of its last unit. Else the words are empty.
inline constexpr unsigned notice_begun = 0, notice_merges = 0, notice_leaves = 1;

__device__ __forceinline__ unsigned* begun_notice(const SplitParams& split, int block) {
  return split.notices + 2 * block;
}
__device__ __forceinline__ unsigned* share_notice(const SplitParams& split, int block) {
  return split.notices + 2 * block + 1;
}

/// Says that the block has begun. By a team, when it begins a part.
template <class Config>
__device__ __forceinline__ void say_begun(const SplitParams& split, const PartNote& note, int thread) {
  if (all_blocks_merge<Config> && note.is_cut && thread == 0)
    store_relaxed(begun_notice(split, note.first_block + note.part), notice_begun);
}

/// Whether all blocks of the unit have begun, so that the block may wait for them. Thread 0 of a team is told, before the
/// team leaves its part: the answer comes meanwhile.
template <class Config>
__device__ __forceinline__ bool may_merge(const SplitParams& split, const PartNote& note, int thread) {
  if (!all_blocks_merge<Config> || thread != 0) return false;
  return note.part == 0 ||
         (note.part < note.mergers && load_relaxed(begun_notice(split, note.first_block)) == notice_begun);
}

/// The shares that blocks of a unit leave to the first one, which asks all of them. By a whole warp, whose lanes get the
/// same answers, as other warps do.
class LeftShares {
 public:
  __device__ __forceinline__ LeftShares(const SplitParams& split, const PartNote& note)
      : split_(split), note_(note) {}

  /// The next one; false if there is none. Waits for blocks to say so.
  __device__ __forceinline__ bool next(int& share) {
#pragma unroll 1
    while (left_ == 0) {
      if (asked_ >= note_.mergers) return false;
      const int block = asked_ + lane_id();
      const unsigned* const word =
          share_notice(split_, note_.first_block + minimum(block, note_.mergers - 1));
      unsigned notice;
      do notice = load_relaxed(word);
      while (__any_sync(full_warp, is_empty(notice)) != 0);  // lanes stay together: see merge_strips
      left_ = __ballot_sync(full_warp, block < note_.mergers && notice == notice_leaves);
      first_ = asked_;
      asked_ += warp_size;
    }
    share = first_ + __ffs(static_cast<int>(left_)) - 1;
    left_ &= left_ - 1;
    return true;
  }

 private:
  const SplitParams& split_;
  const PartNote& note_;
  int asked_ = 1, first_ = 0;
  unsigned left_ = 0;
};

/// Merges a share of a unit: of so many equal ones as there are blocks that merge. By a team whose block has left its part.
template <class Config, int tile_rows, class Team, class F>
__device__ __forceinline__ void merge_share(const BlockResults<Config>& results, const PartNote& note,
                                            const Team& team, int share, F f) {
  using Results = BlockResults<Config>;
  const int strips = rows_of<Config, tile_rows>(note) * Results::strips;
  // mutate: SharesOfStrips
  const int begin = strips * share / note.mergers, end = strips * (share + 1) / note.mergers;
  if (begin == end) return;
    // First for one word of each part: reads of all words, again and again, would hold up those who are still to write.
#pragma unroll 1
  for (int part = team.thread; part < note.parts; part += Team::threads) {
    const float* const state =
        results.state(part, begin / Results::strips, begin % Results::strips * Results::strip);
    while (is_empty(__float_as_uint(load_relaxed(reinterpret_cast<const float2*>(state)).x))) {
    }
  }
  team.sync();
  merge_strips<Config>(results, team, note.parts, begin, end, f);
}

/// Merges the block's share of a unit that is shared and stores the rows. `asked` is what may_merge() has said. By a
/// team whose threads share `note`.
template <class Config, int tile_rows, class Team>
__device__ __forceinline__ void merge_unit(const AttentionParams& params, const DescaleParams& descale,
                                           const SplitParams& split, const PartNote& note, const Team& team,
                                           bool asked) {
  const bool is_first = note.part == 0;
  if (team.thread == 0) {
    note.merges = asked;
    if (!is_first)
      store_relaxed(share_notice(split, note.first_block + note.part), asked ? notice_merges : notice_leaves);
  }
  team.sync();
  if (!note.merges) return;
  const BlockResults<Config> results(split, note);
  LeftShares left(split, note);
  int share = note.part;
#pragma unroll 1
  do {
    merge_share<Config, tile_rows>(results, note, team, share,
                                   [&](int row, int column, const RowPiece& piece) {
                                     store_piece<Config>(params, descale, note, row, column, piece);
                                   });
  } while (is_first && left.next(share));  // mutate: SharesThatAreLeftStay
  if (!is_first) return;
  team.sync();  // all have asked
#pragma unroll 1
  for (int block = 1 + team.thread; block < note.mergers; block += Team::threads)
    store_relaxed(share_notice(split, note.first_block + block), empty_word);  // mutate: NoticesOfSharesStay
}

/// Ends a part, which the team has left in the mailbox if blocks share the unit: merges the block's share, if the part is
/// the last that it has.
template <class Config, int tile_rows, class Team>
__device__ __forceinline__ void merge_shares(const AttentionParams& params, const DescaleParams& descale,
                                             const SplitParams& split, const PartNote& note, const Team& team,
                                             bool asked) {
  if (!note.is_cut || note.part >= note.mergers) return;
  if (note.parts > 1) merge_unit<Config, tile_rows>(params, descale, split, note, team, asked);
  // mutate: BlocksHaveBegun
  if (team.thread == 0) store_relaxed(begun_notice(split, note.first_block + note.part), empty_word);
}

}  // namespace jit
