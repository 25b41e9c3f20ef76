// Backward over keys that arrive from other devices while the kernel runs: the order of tiles, and the waits of a block
// before it loads one.
#pragma once

#include "backward/key_tile.cuh"
#include "backward/tensor_maps.cuh"
#include "base/params.cuh"
#include "base/prelude.cuh"
#include "mainloop/arrival_table.cuh"
#include "ptx/griddepcontrol.cuh"

namespace jit {

/// Does not wait: all keys are in memory.
template <class Config>
class KeyWaits {
 public:
  JIT_DEVICE explicit KeyWaits(const AttentionParams&) {}
  JIT_DEVICE bool wait(int) { return true; }
  JIT_DEVICE bool wait_for_all() { return true; }
};
/// Waits for keys that arrive. Results that need keys that do not arrive in time are NaN. By whole warps.
template <has_arrivals Config>
class KeyWaits<Config> {
 public:
  // Blocks that take turns take tiles of all keys, in the order of any call: no TakenTiles has waited for the table. Keys
  // that no copy brings are zeros, and may be in a tile that is taken.
  JIT_DEVICE explicit KeyWaits(const AttentionParams& params) : arrivals_(params) {
    if constexpr (Config::deterministic) griddepcontrol_wait();
  }

  /// Waits until the tile that begins with `key` has arrived. False: it did not in time.
  JIT_DEVICE bool wait(int key) {
    if (arrivals_.pieces() == 0) return true;
    const int words = arrivals_.granule(key / arrival_granule).words;
    return arrivals_.wait(words);  // mutate: GradientsBeforeKeysArrive
  }
  JIT_DEVICE bool wait_for_all() { return arrivals_.finish(); }

 private:
  typename Config::Arrivals arrivals_;
};

/// The order in which blocks take tiles of keys (tensor_maps.cuh), known on the host.
template <class Config>
class TakenTiles {
 public:
  JIT_DEVICE TakenTiles(const AttentionParams&, const TileOrder& order) : order_(order) {}
  JIT_DEVICE int count() const { return order_.count(); }
  JIT_DEVICE int tile(int number) const { return order_.tile(number); }

 private:
  const TileOrder& order_;
};
/// Takes the rank's own keys first, of all heads, while others arrive. Keys that the rank does not need are not taken.
template <has_arrivals Config>
class TakenTiles<Config> {
  static_assert(arrival_granule % Config::tile_kv == 0);
  static constexpr int tiles_of_granule = arrival_granule / Config::tile_kv;

 public:
  // Waits for the previous grid: until then the SM's caches may hold the table of the previous call.
  JIT_DEVICE TakenTiles(const AttentionParams& params, const TileOrder& order)
      : order_(order), arrivals_(params) {
    griddepcontrol_wait();
  }

  JIT_DEVICE int count() const {
    return arrivals_.pieces() == 0 ? order_.count() : of_head(arrivals_.granules()) * order_.heads;
  }
  JIT_DEVICE int tile(int number) const {
    if (arrivals_.pieces() == 0) return order_.tile(number);
    const int own = of_head(arrivals_.own_granules()), own_of_all = own * order_.heads;
    const bool is_own = number < own_of_all;
    TileOrder part = order_;
    part.key_tiles = is_own ? own : of_head(arrivals_.granules()) - own;
    const int of_part = part.tile(is_own ? number : number - own_of_all);
    const int head = of_part / part.key_tiles;
    const int place = of_part - head * part.key_tiles + (is_own ? 0 : own);
    const int granule = arrivals_.granule(place / tiles_of_granule).visited;
    // The last granule may have fewer tiles.
    const int tile = granule * tiles_of_granule + place % tiles_of_granule;
    return tile < order_.key_tiles ? head * order_.key_tiles + tile : empty_key_tile;
  }

 private:
  JIT_DEVICE int of_head(int granules) const { return granules * tiles_of_granule; }

  const TileOrder& order_;
  typename Config::Arrivals arrivals_;
};

}  // namespace jit
