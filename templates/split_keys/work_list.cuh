// The units of all batch entries in their order, and the pieces of them that are a block's.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "problem/functor.cuh"
#include "problem/masks.cuh"
#include "problem/variable_sequences.cuh"
#include "ptx/atomic.cuh"
#include "scheduling/key_shares.cuh"
#include "split_keys/part_note.cuh"
#include "split_keys/split_params.cuh"

namespace jit {

/// Tiles of keys.
struct TileRange {
  int begin;
  int end;

  __device__ __forceinline__ int count() const { return end - begin; }
};

/// A tile of rows of one KV head of a batch entry, and all keys that they see.
struct Unit {
  int batch;
  int kv_head;
  int row_begin;
  int row_end;
  Sequence q;
  Sequence kv;

  /// Goes to the tile that begins with this row, of `rows` of the sequence.
  __device__ __forceinline__ void enter_rows(int begin, int rows, int tile_rows) {
    row_begin = begin;
    row_end = minimum(begin + tile_rows, rows);
  }
};

template <class Config>
__device__ __forceinline__ BlockContext context_of(const AttentionParams& params, const Unit& unit,
                                                   int head) {
  return {unit.batch, head, params.heads_q, unit.q.length, unit.kv.length, params.tensors};
}

/// Queries [begin, end) to which the rows of a unit belong.
template <class Config>
__device__ __forceinline__ ScoreTile queries_of(const Unit& unit) {
  return {unit.row_begin / Config::gqa_ratio, (unit.row_end - 1) / Config::gqa_ratio + 1, 0, 0};
}

/// The tiles of keys that a unit's share of the line is measured by: no tile outside of them holds a key that its rows
/// see. Asked by single lanes: a mask that answers by warps is not asked.
template <class Config>
__device__ __forceinline__ TileRange tiles_of(const AttentionParams& params, const Unit& unit) {
  using Mask = typename Config::Mask;
  KeyRange keys{0, unit.kv.length};
  if constexpr (has_row_range<Mask>) {
    const ScoreTile queries = queries_of<Config>(unit);
    const Mask mask(context_of<Config>(params, unit, unit.kv_head * Config::gqa_ratio));
    keys = mask.key_range(queries.q_begin, queries.q_end);
  }
  if (keys.begin >= keys.end) return {0, 0};
  return {keys.begin / Config::tile_kv, (keys.end + Config::tile_kv - 1) / Config::tile_kv};
}

/// What the mask leaves of a tile of scores of all heads of a unit. By a whole warp.
template <class Config>
__device__ __forceinline__ TileClass classify(const AttentionParams& params, const Unit& unit,
                                              const ScoreTile& tile) {
  using Mask = typename Config::Mask;
  const int first_head = unit.kv_head * Config::gqa_ratio;
  TileClass kind = Mask(context_of<Config>(params, unit, first_head)).classify(tile);
  if constexpr (depends_on_head<Mask>) {
    for (int g = 1; g < Config::gqa_ratio; ++g) {
      const TileClass other = Mask(context_of<Config>(params, unit, first_head + g)).classify(tile);
      if (other != kind) return TileClass::partial;
    }
  }
  return kind;
}

/// What each KV head of a batch entry has on the line.
struct HeadLength {
  int length;
  int most_tiles;  ///< of a unit
};

template <class Config, int tile_rows>
__device__ __forceinline__ HeadLength head_length(const AttentionParams& params, int batch) {
  const VariableSequences<Config> sequences(params);
  Unit unit{.batch = batch, .q = sequences.q(batch), .kv = sequences.kv(batch)};
  const int rows = unit.q.length * Config::gqa_ratio;
  HeadLength head{0, 0};
#pragma unroll 1
  for (int row = 0; row < rows; row += tile_rows) {
    unit.enter_rows(row, rows, tile_rows);
    const int tiles = tiles_of<Config>(params, unit).count();
    head.length += unit_length(tiles);
    head.most_tiles = maximum(head.most_tiles, tiles);
  }
  return head;
}

/// The sum over this lane and those before it.
__device__ __forceinline__ int sum_up_to_lane(int x) {
#pragma unroll
  for (int step = 1; step < warp_size; step *= 2) {
    const int before = __shfl_up_sync(full_warp, x, step);
    if (lane_id() >= step) x += before;
  }
  return x;
}

/// Walks through the pieces of the line that are the block's, by a whole warp whose lanes all get the same answers. A
/// plain value.
///
///     work.begin(params);
///     while (work.has_piece()) {
///       for (; work.has_unit(params); work.next(params)) use(work.part());
///       work.next_piece(params, split);
///     }
///
/// A unit has `tile_rows` rows, or fewer at the end of a sequence.
template <class Config, int tile_rows>
struct WorkList {
  KeyShares shares;
  int piece;  ///< negative behind the last one
  Unit unit;
  TileRange tiles;  ///< of the unit
  int unit_begin;

  /// Measures the line, and goes to the block's first piece.
  __device__ __forceinline__ void begin(const AttentionParams& params) {
    int total = 0, most_tiles = 0;
#pragma unroll 1
    for (int first = 0; first < params.batch; first += warp_size) {
      const HeadLength own = lane_head_length(params, first);
      total += static_cast<int>(__reduce_add_sync(full_warp, static_cast<unsigned>(own.length)));
      most_tiles = maximum(most_tiles, own.most_tiles);
    }
    shares = key_shares(total * params.heads_kv, static_cast<int>(gridDim.x),
                        __reduce_max_sync(full_warp, most_tiles), params.sequences.num_splits);
    piece = static_cast<int>(blockIdx.x);
    unit = {.batch = 0};
    unit_begin = 0;
    entry_begin = 0;
    if (shares.begin(piece) < shares.total) {
      seek(params, shares.begin(piece));
    } else {
      piece = -1;
    }
  }

  __device__ __forceinline__ bool has_piece() const { return piece >= 0; }

  /// Whether there is a unit that begins before the end of the piece, in which it may have no part.
  __device__ __forceinline__ bool has_unit(const AttentionParams& params) const {
    return unit.batch < params.batch && unit_begin < shares.end(piece);
  }
  /// The part of the unit that lies in the piece.
  __device__ __forceinline__ UnitPart part() const { return shares.part(piece, unit_begin, tiles.count()); }

  /// What a block notes of it.
  __device__ __forceinline__ PartNote note(const UnitPart& part) const {
    return {.batch = unit.batch,
            .kv_head = unit.kv_head,
            .row_begin = unit.row_begin,
            .q_begin = unit.q.begin,
            .seqlen_q = unit.q.length,
            .kv_begin = unit.kv.begin,
            .seqlen_kv = unit.kv.length,
            .part = piece - part.first_piece,
            .parts = part.parts,
            .first_piece = part.first_piece};
  }

  /// Goes to the next unit. Requires: has_unit().
  __device__ __forceinline__ void next(const AttentionParams& params) {
    unit_begin += unit_length(tiles.count());
    if (unit.row_end < rows()) {
      unit.enter_rows(unit.row_end, rows(), tile_rows);
    } else {
      if (++unit.kv_head == params.heads_kv) {
        unit.kv_head = 0;
        ++unit.batch;
        entry_begin = unit_begin;
        enter(params);
      }
      unit.enter_rows(0, rows(), tile_rows);
    }
    if (unit.batch < params.batch) tiles = tiles_of<Config>(params, unit);
  }

  /// Goes to the next piece that is the block's: of the tail, whichever is the next that nobody has taken. The counter
  /// is 0 again when all blocks have asked in vain.
  __device__ __forceinline__ void next_piece(const AttentionParams& params, const SplitParams& split) {
    const int pieces = shares.tail_pieces();
    if (pieces == 0) {
      piece = -1;
      return;
    }
    int taken = 0;
    if (lane_id() == 0) {
      const int last = pieces + shares.blocks - 1;
      taken = static_cast<int>(atomic_inc(split.tail_counter(), static_cast<unsigned>(last)));
    }
    taken = __shfl_sync(full_warp, taken, 0);
    piece = taken < pieces ? shares.blocks + taken : -1;
    if (piece >= 0) seek(params, shares.begin(piece));
  }

 private:
  int entry_begin;  // where the units of unit.batch begin

  __device__ __forceinline__ int rows() const { return unit.q.length * Config::gqa_ratio; }

  // Of the lane's batch entry: those from `first` on have a lane each.
  static __device__ __forceinline__ HeadLength lane_head_length(const AttentionParams& params, int first) {
    const int batch = first + lane_id();
    return batch < params.batch ? head_length<Config, tile_rows>(params, batch) : HeadLength{0, 0};
  }

  // Goes on to a batch entry that has queries.
  __device__ __forceinline__ void enter(const AttentionParams& params) {
    const VariableSequences<Config> sequences(params);
#pragma unroll 1
    for (; unit.batch < params.batch; ++unit.batch) {
      unit.q = sequences.q(unit.batch);
      unit.kv = sequences.kv(unit.batch);
      if (unit.q.length > 0) break;
    }
  }

  // Goes to the unit that holds this place on the line, which lies on it.
  __device__ __forceinline__ void seek(const AttentionParams& params, int place) {
    if (place < entry_begin) unit.batch = entry_begin = 0;
#pragma unroll 1
    while (true) {
      const HeadLength own = lane_head_length(params, unit.batch);
      const int up_to_lane =
          params.batch > 1 ? sum_up_to_lane(own.length) : __shfl_sync(full_warp, own.length, 0);
      const int end = entry_begin + up_to_lane * params.heads_kv;
      const unsigned behind = __ballot_sync(full_warp, end > place);
      if (behind != 0) {
        const int lane = __ffs(static_cast<int>(behind)) - 1;
        unit.batch += lane;
        entry_begin = __shfl_sync(full_warp, end - own.length * params.heads_kv, lane);
        find_unit(params, place, __shfl_sync(full_warp, own.length, lane));
        return;
      }
      entry_begin = __shfl_sync(full_warp, end, warp_size - 1);
      unit.batch += warp_size;
    }
  }

  // Goes to the unit of the batch entry that holds this place on the line. Its KV heads are of the same length.
  __device__ __forceinline__ void find_unit(const AttentionParams& params, int place, int head_length) {
    enter(params);
    unit.kv_head = small_quotient(place - entry_begin, head_length);
    unit_begin = entry_begin + unit.kv_head * head_length;
    unit.enter_rows(0, rows(), tile_rows);
#pragma unroll 1
    while (true) {
      tiles = tiles_of<Config>(params, unit);
      const int end = unit_begin + unit_length(tiles.count());
      if (end > place) return;
      unit_begin = end;
      unit.enter_rows(unit.row_end, rows(), tile_rows);
    }
  }
};

}  // namespace jit
