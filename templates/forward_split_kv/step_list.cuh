// The steps of a block: a step is a tile of keys for a tile of rows. One warp looks ahead and writes the infos of
// steps.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "forward_split_kv/traits.cuh"
#include "problem/masks.cuh"
#include "problem/variable_sequences.cuh"
#include "scheduling/split_tile_scheduler.cuh"

namespace jit::forward_split_kv {

/// The progress of the steps of a split. Words, because a bool leaves bytes that are never written.
struct StepPlace {
  int tile;       ///< tile of the next step, if the split has one
  int tile_end;   ///< end of the tiles of the split, or of its current span
  int split_end;  ///< end of the tiles of the split, if it has spans
  int split;      ///< index of the split's info
  int has_steps;  ///< whether the split has steps left
  int begins;     ///< whether the next step is the split's first
  int is_behind;  ///< whether the block has finished the current work tile
};

/// The block's steps in order. It lies in shared memory, since only one warp needs it, and only for a moment.
template <class Config>
struct StepList {
  using Work = SplitTileScheduler<Config, KernelTraits<Config>::tile_rows>;
  Work work;
  StepPlace place;
};

/// Enters the steps of the block's split of the current work tile, or of a span of it, from tile `tile` on, and writes
/// its info.
template <class Config>
JIT_DEVICE void enter_steps(const AttentionParams& params, const StepList<Config>& list,
                            const WorkTileSplit& mine, StepPlace& place, int tile, Info<Config>* splits) {
  place.has_steps = 1;
  place.tile = tile;
  place.split = place.split + 1 == KernelTraits<Config>::known_steps ? 0 : place.split + 1;
  if constexpr (Config::split_keys != 0) {
    // mutate: SpansFromTheWindowOn
    place.tile_end = minimum(place.split_end, (tile / span_tiles<Config> + 1) * span_tiles<Config>);
    if (lane_id() == 0) splits[place.split] = list.work.span_info(mine, tile);
  } else if constexpr (has_key_lists<Config>) {
    place.tile_end = place.split_end;
    const ListOwner owner = owner_of<Config>(params, list.work.work_tile.batch);
    if (lane_id() == 0) splits[place.split] = {list.work.info(mine), owner};
    __syncwarp();
  } else {
    place.tile_end = place.split_end;
    if (lane_id() == 0) splits[place.split] = list.work.info(mine);
  }
}

/// Enters the block's next split of a work tile, or the next span of its split, and writes its info to `splits`; clears
/// has_steps if none is left. By a whole warp.
template <class Config>
JIT_DEVICE void enter_split(const AttentionParams& params, StepList<Config>& list, StepPlace& place,
                            Info<Config>* splits) {
  if constexpr (Config::split_keys != 0) {
    if (place.tile_end < place.split_end)
      return enter_steps(params, list, list.work.split(), place, place.tile_end, splits);
  }
#pragma unroll 1
  while (true) {
    if (place.is_behind != 0) {
      typename StepList<Config>::Work work = list.work;
      work.next(params);
      __syncwarp();
      if (lane_id() == 0) list.work = work;
      __syncwarp();
    }
    const auto& work = list.work;
    place.is_behind = 0;
    if (!work.has_work_tile(params)) return;
    place.is_behind = 1;
    const WorkTileSplit mine = work.split();
    if (!mine.is_mine) continue;
    place.begins = 1;
    place.split_end = work.tiles.begin + mine.tile_end;
    return enter_steps(params, list, mine, place, work.tiles.begin + mine.tile_begin, splits);
  }
}

/// Class of a tile of scores of a split.
template <class Config>
JIT_DEVICE TileClass class_of_step(const AttentionParams& params, const SplitWorkTile& work_tile,
                                   const Info<Config>& split, const ScoreTile& tile) {
  if constexpr (has_key_lists<Config>) {
    return ListMask<Config>{params, work_tile, split.owner}.classify(tile);
  } else {
    return classify<Config>(params, work_tile, tile);
  }
}

/// The next step, whose tile info is written to `info`. By a whole warp.
template <class Config>
JIT_DEVICE void next_step(const AttentionParams& params, StepList<Config>& list, StepInfo& info,
                          Info<Config>* splits) {
  StepPlace place = list.place;
  if (place.has_steps == 0) enter_split(params, list, place, splits);
  StepInfo next{.split = place.split, .k_begin = 0, .flags = step_is_end};
  if (place.has_steps != 0) {
    const SplitWorkTile& work_tile = list.work.work_tile;
    ScoreTile scores = queries_of<Config>(work_tile);
    TileClass kind = TileClass::empty;
#pragma unroll 1
    for (; place.tile < place.tile_end; ++place.tile) {  // to the next tile with a visible key
      if constexpr (has_next<typename Config::Mask> &&
                    !has_key_lists<Config>) {  // a step without keys ends a split that has no more tiles
        const int next_tile =
            jit::next_key<Config>(params, work_tile, scores, place.tile * Config::tile_kv) / Config::tile_kv;
        place.tile = minimum(next_tile, place.tile_end - 1);
      }
      scores.k_begin = place.tile * Config::tile_kv;
      scores.k_end = minimum(scores.k_begin + Config::tile_kv, work_tile.kv.length);
      kind = class_of_step<Config>(params, work_tile, splits[place.split], scores);
      if (kind != TileClass::empty) break;
    }
    next.k_begin = scores.k_begin;
    const bool is_partial = kind != TileClass::full || next.k_begin + Config::tile_kv > work_tile.kv.length;
    next.flags = (place.begins != 0 ? step_begins : 0u) | (kind != TileClass::empty ? step_has_tile : 0u) |
                 (is_partial ? step_is_partial : 0u);
    if (kind != TileClass::empty) place.begins = 0;
    if (++place.tile >= place.tile_end) {
      next.flags |= step_ends;
      place.has_steps = 0;
    }
  }
  __syncwarp();
  if (lane_id() == 0) {
    list.place = place;
    info = next;
  }
  __syncwarp();
}

}  // namespace jit::forward_split_kv
