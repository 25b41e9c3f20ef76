// Merges the splits of a work tile: the block that computes the first split waits for the results of the others, and merges
// all.
//
// Words of a partial result are never empty, so the reader tests each word by itself, without a counter or a fence (as
// in NCCL's LL protocol). A block computes the first split of a work tile last, while other blocks begin with theirs,
// so the results have nearly always arrived.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "split_keys/block_results.cuh"
#include "split_keys/split_info.cuh"
#include "split_keys/split_params.cuh"

namespace jit {

/// Splits of a group: if a work tile has many splits, different blocks first merge groups of them.
inline constexpr int splits_of_group = 16;
inline constexpr int most_splits_without_groups = 2 * splits_of_group;

/// Empties the states of `rows` rows once all threads have read them. By a team.
template <class Config, class Team>
JIT_DEVICE void empty_states(const BlockResults<Config>& results, const Team& team, int place, int count,
                             int rows) {
  team.sync();  // all have read the states
#pragma unroll 1
  for (int i = team.thread; i < rows * count; i += Team::threads) {
    const float none = __uint_as_float(empty_word);
    results.put_state(place + i / rows, i % rows, 0, {none, none});  // mutate: StatesOfSplitsStay
  }
}

/// Merges `count` results from place `place` on, in the order of keys, and calls f(row, column, piece) for the rows.
/// Empties the places. By a team whose threads have written their own results.
template <class Config, int tile_rows, class Team, class F>
JIT_DEVICE void merge_results(const BlockResults<Config>& results, const SplitInfo& info, const Team& team,
                              int place, int count, F f) {
  const int rows = rows_of<Config, tile_rows>(info);
  const int all = rows * PiecePlace<Config>::of_row;
  const auto merge_all = [&]<int pieces, int reads>() {
#pragma unroll 1
    for (int i = team.thread; i < all; i += pieces * Team::threads)
      merge<pieces, reads>(results, place, count, rows, i, Team::threads, f);
  };
  if constexpr (has_few_registers<Config>()) {
    merge_all.template operator()<1, reads_of_few>();
  } else if (count <= reads_of_few) {
    merge_all.template operator()<2, reads_of_few>();
  } else {
    merge_all.template operator()<1, most_reads>();
  }
  empty_states<Config>(results, team, place, count, rows);
}

/// Merges a work tile's splits and stores the rows, if the team's own split, which it has written, is the first of all
/// or of a group. A Team has a `thread`, a number of `threads`, and `sync()`.
template <class Config, int tile_rows, class Team>
JIT_DEVICE void merge_splits(const AttentionParams& params, const SplitParams& split_params,
                             const SplitInfo& info, const Team& team) {
  const BlockResults<Config> results(split_params, info);
  bool is_group = info.splits > most_splits_without_groups;
  if (is_group ? info.split % splits_of_group != 0 : info.split != 0) return;  // mutate: WhoMerges
  int place = info.split, count = minimum(is_group ? splits_of_group : info.splits, info.splits - info.split);
#pragma unroll 1
  while (true) {
    if constexpr (finds_output_scales<Config>) {
      if (!is_group) {
        constexpr int reads = has_few_registers<Config>() ? reads_of_few : most_reads / 2;
        const int rows = rows_of<Config, tile_rows>(info);
        store_whole_rows<Config>(params, info, team, rows, [&](int row, int column) {
          RowPiece merged;
          merge<1, reads>(results, place, count, rows,
                          row * PiecePlace<Config>::of_row + column / piece_columns, 0,
                          [&](int, int, const RowPiece& piece) { merged = piece; });
          return merged;
        });
        empty_states<Config>(results, team, place, count, rows);
        return;
      }
    }
    merge_results<Config, tile_rows>(
        results, info, team, place, count, [&](int row, int column, const RowPiece& piece) {
          if (is_group) {
            // mutate: GroupsInPlacesOfSplits
            results.put(info.splits + info.split / splits_of_group, row, column, piece);
          } else if constexpr (!finds_output_scales<Config>) {
            store_piece<Config>(params, info, row, column, piece);
          }
        });
    if (!is_group || info.split != 0) return;
    is_group = false;  // from here on: results of groups
    place = info.splits;
    count = (info.splits + splits_of_group - 1) / splits_of_group;
  }
}

}  // namespace jit
