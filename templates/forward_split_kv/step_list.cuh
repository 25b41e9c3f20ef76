// What a block does, step by step: a step is a tile of keys for a tile of rows. One warp looks ahead and leaves notes
// for all of them.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "forward_split_kv/traits.cuh"
#include "forward_split_kv/work_list.cuh"
#include "problem/masks.cuh"
#include "problem/variable_sequences.cuh"

namespace jit::forward_split_kv {

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

/// The block's steps in order, by a whole warp. A plain value, which lies in shared memory between steps: only one warp
/// needs it, and then only for a moment.
template <class Config>
struct StepList {
  WorkList<Config> work;
  int tile;      ///< of the next step; tile_end when its part has none that is seen
  int tile_end;  ///< of the part
  int parts;
  int first_block;
  int is_partial;  ///< the next step's tile; not a bool, which leaves bytes that are never written
  int begins;      ///< whether the next step begins the part

  __device__ __forceinline__ void begin(const AttentionParams& params) {
    work.begin(params);
    enter_part(params);
  }

  /// The next step.
  __device__ __forceinline__ StepNote next(const AttentionParams& params) {
    StepNote note{};
    note.flags = step_is_end;
    if (!work.has_unit(params)) return note;
    const Unit& unit = work.unit;
    note = {.batch = unit.batch,
            .kv_head = unit.kv_head,
            .row_begin = unit.row_begin,
            .q_begin = unit.q.begin,
            .seqlen_q = unit.q.length,
            .kv_begin = unit.kv.begin,
            .seqlen_kv = unit.kv.length,
            .k_begin = tile * Config::tile_kv,
            .flags = (tile < tile_end ? step_has_tile : 0u) | (is_partial ? step_is_partial : 0u) |
                     (begins ? step_begins : 0u),
            .parts = parts,
            .first_block = first_block};
    begins = 0;
    find_tile(params, tile + 1);
    if (tile < tile_end) return note;
    note.flags |= step_ends;
    work.next(params);
    enter_part(params);
    return note;
  }

 private:
  // Goes to the block's next part of a unit, if there is one.
  __device__ __forceinline__ void enter_part(const AttentionParams& params) {
    for (; work.has_unit(params); work.next(params)) {
      const UnitPart part = work.part();
      if (!part.is_mine) continue;
      parts = part.parts;
      first_block = part.first_block;
      tile_end = work.tiles.begin + part.tile_end;
      begins = 1;
      find_tile(params, work.tiles.begin + part.tile_begin);
      return;
    }
  }

  // Goes to the first tile from `first` on that holds a key that is seen.
  __device__ __forceinline__ void find_tile(const AttentionParams& params, int first) {
    ScoreTile scores = queries_of<Config>(work.unit);
    TileClass kind = TileClass::full;
    for (tile = first; tile < tile_end; ++tile) {
      scores.k_begin = tile * Config::tile_kv;
      scores.k_end = minimum(scores.k_begin + Config::tile_kv, work.unit.kv.length);
      kind = classify<Config>(params, work.unit, scores);
      if (kind != TileClass::empty) break;
    }
    is_partial = kind != TileClass::full || (tile + 1) * Config::tile_kv > work.unit.kv.length ? 1 : 0;
  }
};

/// Goes on to the next step, and leaves its note.
template <class Config>
__device__ __forceinline__ void advance(StepList<Config>& shared, const AttentionParams& params, StepNote& note) {
  StepList<Config> steps = shared;
  const StepNote next = steps.next(params);
  __syncwarp();
  if (lane_id() == 0) {
    shared = steps;
    note = next;
  }
  __syncwarp();
}

/// The place of one row of the tile of a step, in two parts: the page is on its way between them.
template <class Config>
__device__ __forceinline__ int ask_for_page(const AttentionParams& params, const StepNote& note, int row) {
  const int key = note.k_begin + row;
  if ((note.flags & step_has_tile) == 0 || key >= note.seqlen_kv) return 0;
  return VariableSequences<Config>(params).page(note.batch, note.kv_begin + key);
}
template <class Config>
__device__ __forceinline__ RowOffsets row_offsets(const AttentionParams& params, const StepNote& note, int row,
                                                  int page) {
  const VariableSequences<Config> sequences(params);
  const int key = note.k_begin + row;
  if (key >= note.seqlen_kv) return {-1, -1};
  return {sequences.kv_offset(params.k_strides, note.batch, note.kv_head, note.kv_begin + key, page),
          sequences.kv_offset(params.v_strides, note.batch, note.kv_head, note.kv_begin + key, page)};
}

}  // namespace jit::forward_split_kv
