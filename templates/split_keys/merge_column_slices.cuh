// Merges column slices of rows by warps: some columns of a row, from the results of all splits of a work tile.
//
// A column slice of 16 columns takes four lanes, so a warp merges eight column slices at a time, or fewer, whose splits
// are divided among groups of lanes. Each lane merges its splits in the order of keys, then lanes with the same columns
// are joined, earlier splits with later ones: the order of sums depends only on the numbers of splits and column
// slices.
#pragma once

#include "base/prelude.cuh"
#include "ptx/math.cuh"
#include "ptx/relaxed.cuh"
#include "split_keys/block_results.cuh"
#include "split_keys/result_pieces.cuh"
#include "split_keys/split_params.cuh"
#include "tiles/shared_words.cuh"

namespace jit {

inline constexpr int lanes_of_column_slice = 4;
inline constexpr int most_column_slices_of_warp = warp_size / lanes_of_column_slice;

/// Column slices of a tile of rows, row by row, some of which are `begin` to `end`; a warp's next ones are `step`
/// behind.
struct ColumnSlices {
  int begin;
  int end;
  int step;
};

/// The splits and the column slices of its warp that a lane merges.
struct LanePlace {
  int groups;  ///< groups of lanes among which splits are divided: a power of 2
  int splits;  ///< of the work tile
  int lane;

  JIT_DEVICE int lanes() const { return warp_size / groups; }
  JIT_DEVICE int group() const { return lane / lanes(); }
  JIT_DEVICE int column_slice() const { return lane % lanes() / lanes_of_column_slice; }
  JIT_DEVICE int first_split() const { return splits * group() / groups; }
  // mutate: SplitsOfAnotherGroup
  JIT_DEVICE int end_split() const { return splits * (group() + 1) / groups; }
  /// The largest number of splits that a lane merges.
  JIT_DEVICE int most_splits() const { return (splits + groups - 1) / groups; }
};

/// Four columns of a column slice.
template <class Config>
struct ColumnSlicePiece {
  int row;
  int column;
  bool exists;

  JIT_DEVICE ColumnSlicePiece(const ColumnSlices& column_slices, int column_slice, int lane) {
    using Results = BlockResults<Config>;
    static_assert(Results::column_slice == lanes_of_column_slice * piece_columns);
    row = column_slice / Results::column_slices;
    column = column_slice % Results::column_slices * Results::column_slice +
             lane % lanes_of_column_slice * piece_columns;
    exists = column_slice < column_slices.end && column < Results::columns;
  }
};

/// Joins the results of all lanes with the same piece, in the order of their splits, in the lanes of the first group.
/// Each lane joins a later lane's result; lanes without one compute results that are not used. By a whole warp.
JIT_DEVICE RowPiece join_lanes(RowPiece piece, const LanePlace& place) {
#pragma unroll 1
  for (int distance = place.lanes(); distance < warp_size; distance *= 2) {
    const auto theirs = [&](float x) { return __shfl_xor_sync(full_warp, x, distance); };
    piece = join(piece, {make_float4(theirs(piece.values.x), theirs(piece.values.y), theirs(piece.values.z),
                                     theirs(piece.values.w)),
                         {theirs(piece.state.max), theirs(piece.state.sum)}});
  }
  return piece;
}

/// Merges column slices; each lane has one piece of each of `pieces` column slices at a time. Calls f(row, column,
/// piece) once for each piece. Waits for the results, and empties their words. Loads of `reads` results are in flight
/// at once. By a whole warp.
template <int pieces, int reads, class Config, class F>
JIT_DEVICE void merge_warp_column_slices(const BlockResults<Config>& results,
                                         const ColumnSlices& column_slices, const LanePlace& place, F f) {
  const float none = __uint_as_float(empty_word);
  const int floats = results.floats(), count = place.end_split() - place.first_split();
#pragma unroll 1
  for (int column_slice = column_slices.begin; column_slice < column_slices.end;
       column_slice += pieces * column_slices.step) {
    const auto piece_of = [&](int p) {
      return ColumnSlicePiece<Config>(
          column_slices, column_slice + p * column_slices.step + place.column_slice(), place.lane);
    };
    RowPiece merged[pieces];
#pragma unroll
    for (RowPiece& piece : merged) piece = piece_without_keys();
#pragma unroll 1
    for (int first = 0; first < place.most_splits(); first += reads) {
      RowPiece read[pieces][reads];
      bool is_waiting = true;
#pragma unroll 1
      while (is_waiting) {
        is_waiting = false;
        int distance = floats;
        asm volatile("" : "+r"(distance));  // else all addresses would be kept through the loop
#pragma unroll
        for (int p = 0; p < pieces; ++p) {
          const ColumnSlicePiece<Config> at = piece_of(p);
          const float* values = results.values(place.first_split() + first, at.row, at.column);
          const float* state = results.state(place.first_split() + first, at.row, at.column);
#pragma unroll
          for (int i = 0; i < reads; ++i) {
            read[p][i] = piece_without_keys();
            if (at.exists && first + i < count) read[p][i] = load_piece(values, state);
            values += distance;  // mutate: WordsOfTheFirstColumnSliceAlone
            state += distance;
          }
        }
#pragma unroll
        for (int i = 0; i < pieces * reads; ++i) is_waiting |= is_missing(read[i / reads][i % reads]);
        is_waiting = __any_sync(full_warp, is_waiting) != 0;  // all lanes have read before one empties a word
      }
#pragma unroll
      for (int p = 0; p < pieces; ++p) {
        const ColumnSlicePiece<Config> at = piece_of(p);
        float* values = results.values(place.first_split() + first, at.row, at.column);
        float* state = results.state(place.first_split() + first, at.row, at.column);
        float max = merged[p].state.max;
#pragma unroll
        for (int i = 0; i < reads; ++i) {
          max = fmaxf(max, read[p][i].state.max);
          if (at.exists && first + i < count) {
            // mutate: ValuesOfColumnSlicesStay
            store_relaxed(reinterpret_cast<float4*>(values), make_float4(none, none, none, none));
            if (at.column % results.column_slice == 0)
              // mutate: StatesOfColumnSlicesStay
              store_relaxed(reinterpret_cast<float2*>(state), make_float2(none, none));
          }
          values += floats;
          state += floats;
        }
        relate_to(max, merged[p]);
#pragma unroll
        for (int i = 0; i < reads; ++i) add_weighted(merged[p], weight_of(read[p][i].state, max), read[p][i]);
      }
    }
#pragma unroll 1
    for (int p = 0; p < pieces; ++p) {                      // one copy of f
      const RowPiece piece = join_lanes(merged[0], place);  // mutate: GroupsThatDoNotMeet
#pragma unroll
      for (int i = 1; i < pieces; ++i) merged[i - 1] = merged[i];  // an index would take them to local memory
      const ColumnSlicePiece<Config> at = piece_of(p);
      if (at.exists && place.group() == 0) f(at.row, at.column, piece);
    }
  }
}

/// Results that a thread reads at once. More loads in flight take longer, and an ending kernel runs this code once, so
/// that each instruction is fetched from memory.
inline constexpr int reads_of_column_slices = 8;

/// Merges the column slices from `begin` to `end` of a tile of rows, of a work tile of so many splits, by a team: as
/// many groups of lanes share the splits as leave a place for each column slice. The compiler must see that lanes of
/// a warp go through the same loops, here and where notices are waited for: else it takes them to be apart for the
/// rest of the kernel, and the addresses of the next split's products, which all lanes of a warp share, go from
/// register to register, twice for each wgmma.
template <class Config, class Team, class F>
JIT_DEVICE void merge_column_slices(const BlockResults<Config>& results, const Team& team, int splits,
                                    int begin, int end, F f) {
  constexpr int warps = Team::threads / warp_size;
  LanePlace place{most_column_slices_of_warp, splits, lane_id()};
  while (place.groups > 1 &&
         (place.groups > splits || most_column_slices_of_warp / place.groups * warps < end - begin))
    place.groups /= 2;
  const int column_slices_of_warp = most_column_slices_of_warp / place.groups;
  const ColumnSlices column_slices = {begin + uniform(team.thread / warp_size) * column_slices_of_warp, end,
                                      warps * column_slices_of_warp};
  if constexpr (has_few_registers<Config>()) {
    merge_warp_column_slices<1, reads_of_few>(results, column_slices, place, f);
  } else if (place.most_splits() <= reads_of_few) {
    merge_warp_column_slices<reads_of_column_slices / reads_of_few, reads_of_few>(results, column_slices,
                                                                                  place, f);
  } else {
    merge_warp_column_slices<1, reads_of_column_slices>(results, column_slices, place, f);
  }
}

}  // namespace jit
