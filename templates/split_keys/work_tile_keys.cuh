// The keys that the rows of a work tile see, and the mask's answers to producers of tiles of keys.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "mainloop/key_tile_info.cuh"
#include "problem/functor.cuh"
#include "problem/key_lists.cuh"
#include "problem/kv_tiles.cuh"
#include "problem/masks.cuh"
#include "problem/paged_kv.cuh"
#include "problem/positions.cuh"
#include "split_keys/split_info.cuh"

namespace jit {

/// A range of tiles of keys.
struct TileRange {
  int begin;
  int end;

  JIT_DEVICE int count() const { return end - begin; }
};

/// The work tile of a split.
template <class Config>
JIT_DEVICE SplitWorkTile work_tile_of(const SplitInfo& split, int tile_rows) {
  SplitWorkTile work_tile{split.batch, split.kv_head, 0, 0, split.q, split.kv};
  work_tile.enter_rows(split.row_begin, split.q.length * Config::gqa_ratio, tile_rows);
  return work_tile;
}

template <class Config>
JIT_DEVICE BlockContext context_of(const AttentionParams& params, const SplitWorkTile& work_tile, int head) {
  return {work_tile.batch,   head,          params.heads_q, work_tile.q.length, work_tile.kv.length,
          work_tile.q.begin, params.tensors};
}

/// Queries [begin, end) to which the rows of a work tile belong.
template <class Config>
JIT_DEVICE ScoreTile queries_of(const SplitWorkTile& work_tile) {
  return {work_tile.row_begin / Config::gqa_ratio, (work_tile.row_end - 1) / Config::gqa_ratio + 1, 0, 0};
}

/// The number of heads, out of `heads`, for which the mask must be evaluated to know it for all.
template <class Config>
JIT_DEVICE int heads_to_ask(const AttentionParams& params, const SplitWorkTile& work_tile, int heads) {
  using Mask = typename Config::Mask;
  if constexpr (!depends_on_head<Mask>) return 1;
  return heads_differ(Mask(context_of<Config>(params, work_tile, 0))) ? heads : 1;
}

/// A range of keys that contains all keys that the rows of a work tile see, as far as a single lane can tell. It is the
/// same for all KV heads: if heads see different keys, it covers all of them.
template <class Config>
JIT_DEVICE KeyRange keys_of(const AttentionParams& params, const SplitWorkTile& work_tile) {
  if constexpr (has_key_lists<Config>) return {0, work_tile.kv.length};
  using Mask = typename Config::Mask;
  const ScoreTile queries = queries_of<Config>(work_tile);
  const auto keys_of_head = [&](int head) {
    const Mask mask(context_of<Config>(params, work_tile, head));
    return lane_key_range(mask, work_tile.kv.length, queries.q_begin, queries.q_end);
  };
  KeyRange keys = keys_of_head(0);
  const int heads = heads_to_ask<Config>(params, work_tile, params.heads_q);
#pragma unroll 1
  for (int head = 1; head < heads; ++head) keys = Either::of_ranges(keys, keys_of_head(head));
  return keys;
}

/// The tiles of keys that determine a work tile's length in the tile space: they contain all keys that its rows see. By
/// single lanes.
template <class Config>
JIT_DEVICE TileRange tiles_of(const AttentionParams& params, const SplitWorkTile& work_tile) {
  const KeyRange keys = keys_of<Config>(params, work_tile);
  if (keys.begin >= keys.end) return {0, 0};
  return {keys.begin / Config::tile_kv, (keys.end + Config::tile_kv - 1) / Config::tile_kv};
}

/// Checks the page of keys [key, key + count) of a work tile, which lie in one page, if arrays are checked and a row
/// may see one of the keys.
template <class Config>
JIT_DEVICE void expect_page(const AttentionParams& params, const SplitWorkTile& work_tile, int key, int count,
                            int page) {
  PagedKv<Config>(params).expect(work_tile.batch, work_tile.kv, key, count, page,
                                 [&] { return keys_of<Config>(params, work_tile); });
}

/// Class of a tile of scores for all heads of a work tile. By a whole warp.
template <class Config>
JIT_DEVICE TileClass classify(const AttentionParams& params, const SplitWorkTile& work_tile,
                              const ScoreTile& tile) {
  using Mask = typename Config::Mask;
  const int first_head = work_tile.kv_head * Config::gqa_ratio;
  TileClass kind = Mask(context_of<Config>(params, work_tile, first_head)).classify(tile);
  const int heads = heads_to_ask<Config>(params, work_tile, Config::gqa_ratio);
  for (int g = 1; g < heads; ++g) {
    const TileClass other = Mask(context_of<Config>(params, work_tile, first_head + g)).classify(tile);
    if (other != kind) return TileClass::partial;
  }
  return kind;
}

/// The first key from k on that a query of the work tile may see, in any head. By a whole warp.
template <class Config>
JIT_DEVICE int next_key(const AttentionParams& params, const SplitWorkTile& work_tile,
                        const ScoreTile& queries, int k) {
  using Mask = typename Config::Mask;
  const int first_head = work_tile.kv_head * Config::gqa_ratio;
  const auto next_of_head = [&](int g) {
    return next_key(Mask(context_of<Config>(params, work_tile, first_head + g)), queries.q_begin,
                    queries.q_end, k);
  };
  int next = next_of_head(0);
  const int heads = heads_to_ask<Config>(params, work_tile, Config::gqa_ratio);
  for (int g = 1; g < heads; ++g) next = minimum(next, next_of_head(g));
  return next;
}

/// Whether keys that all queries of a work tile see are computed once, because looking up positions is expensive.
template <class Config>
inline constexpr bool knows_seen_keys =
    has_positions<Config>&& has_row_range<typename Config::Mask> && !depends_on_head<typename Config::Mask>;

/// Keys that all queries of a work tile see: the common range of the first and the last query, if the mask classifies
/// it as full, else none.
template <class Config>
JIT_DEVICE KeyRange seen_by_all(const AttentionParams& params, const SplitWorkTile& work_tile) {
  const ScoreTile queries = queries_of<Config>(work_tile);
  if (queries.q_begin >= queries.q_end || work_tile.kv.length == 0) return {0, 0};
  const typename Config::Mask mask(context_of<Config>(params, work_tile, 0));
  const KeyRange first = mask.row_range(queries.q_begin), last = mask.row_range(queries.q_end - 1);
  const KeyRange keys = {maximum(first.begin, last.begin), minimum(first.end, last.end)};
  if (keys.begin >= keys.end) return {0, 0};
  // mutate: SeenKeysAreNotAsked
  return mask.classify({queries.q_begin, queries.q_end, keys.begin, keys.end}) == TileClass::full
             ? keys
             : KeyRange{0, 0};
}

/// The mask of a work tile, in the form that KvTiles evaluates.
template <class Config>
struct WorkTileMask {
  const AttentionParams& params;
  const SplitWorkTile& work_tile;

  JIT_DEVICE TileClass classify(const ScoreTile& tile) const {
    return jit::classify<Config>(params, work_tile, tile);
  }
  JIT_DEVICE int next_key(int q_begin, int q_end, int k) const requires has_next<typename Config::Mask> {
    return jit::next_key<Config>(params, work_tile, {q_begin, q_end, 0, 0}, k);
  }
};

template <class Config>
requires knows_seen_keys<Config>
struct WorkTileMask<Config> {
  const AttentionParams& params;
  const SplitWorkTile& work_tile;
  KeyRange seen;

  JIT_DEVICE WorkTileMask(const AttentionParams& given, const SplitWorkTile& tile)
      : params(given), work_tile(tile), seen(seen_by_all<Config>(given, tile)) {}
  JIT_DEVICE TileClass classify(const ScoreTile& tile) const {
    const bool is_seen = tile.k_begin >= seen.begin && tile.k_end <= seen.end;  // mutate: SeenTilesGoFurther
    if (is_seen) return TileClass::full;
    return jit::classify<Config>(params, work_tile, tile);
  }
};

/// The mask of tiles of keys along a list: it is evaluated for the range of positions around a tile.
template <class Config>
struct ListMask {
  const AttentionParams& params;
  const SplitWorkTile& work_tile;
  ListOwner owner;

  JIT_DEVICE TileClass classify(const ScoreTile& tile) const {
    using Lists = typename Config::Lists;
    return classify(tile, [&](int key, int& position, unsigned& members) {
      position = Lists::template position<Config>(params, owner, work_tile.batch, work_tile.kv_head, key);
      if (position >= 0) members = Lists::members(params.tensors, work_tile.batch, work_tile.kv_head, key);
    });
  }

  /// The class of a tile; find(key, position, members) sets the position of a key and the members that see it.
  template <class Find>
  JIT_DEVICE TileClass classify(const ScoreTile& tile, const Find& find) const {
    if (tile.k_begin >= tile.k_end) return TileClass::empty;
    using Lists = typename Config::Lists;
    constexpr unsigned all_queries = static_cast<unsigned>((1ull << Lists::queries) - 1);
    // If a tile has one entry, its first key determines the positions of all.
    constexpr int step = Lists::block % Config::tile_kv == 0 ? Config::tile_kv : 1;
    int first = 0x7fffffff, last = -1;
    bool are_all = tile.k_end - tile.k_begin == Config::tile_kv && owner.queries == work_tile.q.length;
#pragma unroll 1
    for (int key = tile.k_begin + lane_id() * step; key < tile.k_end; key += warp_size * step) {
      int position;
      unsigned members = 0;
      find(key, position, members);
      are_all &= position >= 0;
      if (position < 0) continue;
      first = minimum(first, position);
      if constexpr (step == 1) {
        last = maximum(last, position);
      } else {
        const int end = minimum(position + step, Lists::template keys<Config>(params, owner));
        last = maximum(last, end - 1);
        are_all &= end - position == step;  // mutate: CutEntriesAreFull
      }
      are_all &= (members & all_queries) == all_queries;  // mutate: TilesWithoutMembersAreFull
    }
    last = __reduce_max_sync(full_warp, last);
    if (last < 0) return TileClass::empty;
    first = __reduce_min_sync(full_warp, first);
    TileClass kind = TileClass::full;
    if constexpr (!Lists::has_slots) {
      const SplitWorkTile owned{owner.sequence,    work_tile.kv_head, work_tile.row_begin,
                                work_tile.row_end, owner.q,           owner.kv};
      kind =
          jit::classify<Config>(params, owned, {owner.query, owner.query + owner.queries, first, last + 1});
    }
    // mutate: TilesOfListsAreFull
    if (!__all_sync(full_warp, are_all) && kind == TileClass::full) return TileClass::partial;
    return kind;
  }
};

/// The mask of a work tile, for a Config.
template <class Config>
JIT_DEVICE auto mask_of(const AttentionParams& params, const SplitWorkTile& work_tile) {
  if constexpr (has_key_lists<Config>) {
    return ListMask<Config>{params, work_tile, owner_of<Config>(params, work_tile.batch)};
  } else {
    return WorkTileMask<Config>{params, work_tile};
  }
}

/// The tiles of keys of a split that the rows of its work tile see.
template <class Config, int ahead = 1>
using WorkTileKeys =
    KvTiles<typename ChosenType<has_key_lists<Config>, ListMask<Config>, WorkTileMask<Config>>::type,
            Config::tile_kv, ahead>;

/// The tile info of the current tile of `tiles`.
template <class Tiles>
JIT_DEVICE KeyTileInfo info_of(const Tiles& tiles) {
  return {tiles.key(0), (tiles.is_partial() ? key_info_partial : 0) | (tiles.has(1) ? 0 : key_info_end)};
}

}  // namespace jit
