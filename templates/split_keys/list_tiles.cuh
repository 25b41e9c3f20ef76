// Tiles of keys along a list. Entries are prefetched: each must arrive before the row that it names is loaded.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "mainloop/key_tile_info.cuh"
#include "problem/functor.cuh"
#include "problem/key_lists.cuh"
#include "problem/masks.cuh"
#include "split_keys/work_tile_keys.cuh"

namespace jit {

/// Iterates over tiles like KvTiles with a look-ahead of 1, and finds the positions of their keys. By a whole warp;
/// each lane has two keys of a tile.
template <class Config>
class ListTiles {
  using Lists = typename Config::Lists;
  static_assert(Config::tile_kv == 2 * warp_size, "a lane has two keys");

 public:
  JIT_DEVICE ListTiles(const ListMask<Config>& mask, const ScoreTile& /*queries*/, const KeyRange& share,
                       int /*length*/)
      : mask_(mask),
        end_((share.end + Config::tile_kv - 1) / Config::tile_kv),
        next_(share.begin / Config::tile_kv),
        count_(Lists::count(mask.params.tensors, mask.work_tile.batch, mask.work_tile.kv_head)) {
    ask(next_);
    advance();
    advance();
  }

  /// Index in the list of the first key of the tile `ahead` (0 or 1) steps ahead; meaningless unless `has(ahead)`.
  JIT_DEVICE int key(int ahead) const { return tiles_[ahead].index * Config::tile_kv; }
  JIT_DEVICE bool has(int ahead) const { return tiles_[ahead].index < end_; }
  JIT_DEVICE bool is_partial(int ahead = 0) const { return tiles_[ahead].is_partial; }

  JIT_DEVICE void advance() {
    tiles_[0] = tiles_[1];
    TileClass kind = TileClass::empty;
    Tile& tile = tiles_[1];
    for (; next_ < end_; ++next_) {
      resolve(tile);
      ask(next_ + 1);
      const int k_begin = next_ * Config::tile_kv;
      ScoreTile scores = queries_of<Config>(mask_.work_tile);
      scores.k_begin = k_begin;
      scores.k_end = minimum(k_begin + Config::tile_kv, mask_.work_tile.kv.length);
      kind = mask_.classify(scores, [&](int key, int& position, unsigned& members) {
        position = key < k_begin + warp_size ? tile.positions[0] : tile.positions[1];
        members = members_of(key, position);
      });
      if (kind != TileClass::empty) break;
    }
    tile.is_partial = kind != TileClass::full;
    tile.index = next_++;
  }

  /// Position of the lane's i-th key of the current tile, and the members that see it.
  JIT_DEVICE int own_position(int i) const { return tiles_[0].positions[i]; }
  JIT_DEVICE unsigned own_members(int i) const {
    return members_of(key_of_lane(tiles_[0].index, i), own_position(i));
  }

 private:
  struct Tile {
    int index;
    bool is_partial;
    int positions[2];
  };

  // Prefetches the entries of a tile.
  JIT_DEVICE void ask(int index) {
    const SplitWorkTile& work_tile = mask_.work_tile;
    const FunctorTensor* const tensors = mask_.params.tensors;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int at = key_of_lane(index, i) / Lists::block;
      entries_[i] = Lists::entry(tensors, work_tile.batch, work_tile.kv_head, at, count_);
    }
  }
  // Computes the positions of a tile from the prefetched entries.
  JIT_DEVICE void resolve(Tile& tile) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      tile.positions[i] =
          Lists::template position_in<Config>(mask_.params, mask_.owner, entries_[i], key_of_lane(next_, i));
    }
  }
  // The members that see a key; none if its position is negative.
  JIT_DEVICE unsigned members_of(int key, int position) const {
    const SplitWorkTile& work_tile = mask_.work_tile;
    return position < 0 ? 0 : Lists::members(mask_.params.tensors, work_tile.batch, work_tile.kv_head, key);
  }
  static JIT_DEVICE int key_of_lane(int index, int i) {
    return index * Config::tile_kv + i * warp_size + reread_lane();
  }

  const ListMask<Config>& mask_;
  const int end_;
  int next_;         // next tile to test
  const int count_;  // valid entries
  Tile tiles_[2];
  int entries_[2];
};

/// Tiles of keys of a split, for producers that copy row by row.
template <class Config>
using RowTiles = typename ChosenType<has_key_lists<Config>, ListTiles<Config>, WorkTileKeys<Config>>::type;

}  // namespace jit
