// The producer warp of splits: it plans the next tiles of keys and values, and loads them by TMA.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "mainloop/scaled_kv_producer.cuh"
#include "mainloop/tile_boxes.cuh"
#include "problem/key_lists.cuh"
#include "scheduling/split_tile_scheduler.cuh"
#include "split_keys/split_params.cuh"
#include "split_keys/split_pipeline.cuh"
#include "split_keys/work_tile_keys.cuh"

namespace jit {

template <class Traits>
JIT_DEVICE const TensorMap& k_map(const KernelMemory& memory) {
  return memory.k;
}
template <class Traits>
JIT_DEVICE const TensorMap& v_map(const KernelMemory& memory) {
  return memory.v;
}

/// Where the lane's box of a tile of keys or values of a work tile begins. Of a tile with some keys of the sequence all
/// boxes are copied, those without keys as zeros: TMA reads zeros where there is no such page.
template <class Traits>
JIT_DEVICE RowPlace key_box(const AttentionParams& params, const SplitWorkTile& work_tile, int k_begin) {
  return lane_box<Traits>(params, work_tile.batch, work_tile.kv_head, work_tile.kv, k_begin,
                          [&] { return keys_of<typename Traits::Config>(params, work_tile); });
}

/// Where the lane's box lies if keys are a list's, of which a tile is of one entry: one that names no keys has no boxes.
template <class Traits>
JIT_DEVICE RowPlace listed_box(const AttentionParams& params, const SplitWorkTile& work_tile,
                               const ListOwner& owner, int k_begin) {
  using Config = typename Traits::Config;
  const int key = k_begin + lane_id() * Traits::box_rows;
  RowPlace place{0, work_tile.kv_head, -1};
  if (lane_id() < Traits::boxes) {
    place = Config::Lists::template place<Config>(params, owner, work_tile.batch, work_tile.kv_head, key);
  }
  if (place.batch >= 0 && !PagedKv<Config>(params).exists(place.batch)) place.batch = -1;
  return place;
}

/// Whether keys that several blocks read come to the L2 cache before they are loaded.
template <class Traits>
inline constexpr bool prefetches_keys = requires {
  requires Traits::prefetches_keys;
};

/// A Traits is that of the Producer and of split_keys/split_pipeline.cuh; `values_in_keys` says whether values are columns
/// of the keys, and not loaded.
template <class Traits, class Producer = TileProducer<Traits, KernelMemory, BoxOfRows<Traits>>>
class SplitKvProducer {
  using Config = typename Traits::Config;
  using Place = typename Producer::Place;
  static constexpr bool prefetches = prefetches_keys<Traits>;
  using Tiles = WorkTileKeys<Config, prefetches ? 2 : 1>;

 public:
  JIT_DEVICE SplitKvProducer(const AttentionParams& params, const KernelMemory& memory, unsigned char* bytes,
                             unsigned smem)
      : params_(params), producer_(params, memory, smem), splits_(bytes, smem) {}

  /// Walks through the block's share of the work. Each tile of keys is followed by the values of the one before, from
  /// one split to the next: scores are computed first. A split without keys comes behind them.
  template <class Work>
  JIT_DEVICE void run(Work& work) {
    for_each_split<Config, Tiles>(params_, work, [&](const Info<Config>& info, Tiles& tiles) {
      load_tiles(work.work_tile, info, tiles);
    });
    producer_.load_values();
    if constexpr (Traits::upcasts) producer_.tell(key_info_no_more);  // mutate: ConvertersWithoutEnd
    splits_.put_end();
  }

 private:
  // All of a split.
  JIT_DEVICE void load_tiles(const SplitWorkTile& work_tile, const Info<Config>& info, Tiles& tiles) {
    splits_.put(info);  // queries are longer on their way than keys
    if (!tiles.has(0)) {
      producer_.load_values();  // without values no thread reaches this code
      return producer_.tell(key_info_none);
    }
    Place box = box_at(work_tile, info, tiles.key(0));
    if constexpr (prefetches) return load_shared_tiles(work_tile, info, tiles, box);
    while (tiles.has(0)) {
      producer_.load_keys(box, info_of(tiles));
      // The next tile's pages are on the way while values wait for room.
      const Place next = tiles.has(1) ? box_at(work_tile, info, tiles.key(1)) : box;
      producer_.load_values();
      if constexpr (!Traits::values_in_keys) producer_.put_values(box);
      box = next;
      tiles.advance();
    }
  }

  // All of a split, if the rows of a KV head are several tiles. Blocks that run side by side read the same keys then, so that
  // none waits for memory while another reads, and products take as long as memory does. The block with the first rows asks
  // for each tile a tile before there is room for it. Pages are looked up a further tile before.
  JIT_DEVICE void load_shared_tiles(const SplitWorkTile& work_tile, const Info<Config>& info, Tiles& tiles,
                                    Place box) {
    const bool asks = info.row_begin == 0 && info.q.length * Config::gqa_ratio > Traits::tile_rows;
    Place next = tiles.has(1) ? box_at(work_tile, info, tiles.key(1)) : box;
    while (tiles.has(0)) {
      const Place after = tiles.has(2) ? box_at(work_tile, info, tiles.key(2)) : next;
      if (asks && tiles.has(1)) producer_.prefetch_keys(next);
      producer_.load_keys(box, info_of(tiles));
      box = next;
      next = after;
      tiles.advance();
    }
  }

  JIT_DEVICE Place box_at(const SplitWorkTile& work_tile, const Info<Config>& info, int k_begin) const {
    if constexpr (has_key_lists<Config>) {
      return listed_box<Traits>(params_, work_tile, info.owner, k_begin);
    } else if constexpr (converts_scales<Config>) {
      return rows_of_box<Traits>(params_, key_box<Traits>(params_, work_tile, k_begin),
                                 work_tile.kv.length - k_begin);
    } else {
      return key_box<Traits>(params_, work_tile, k_begin);
    }
  }

  const AttentionParams& params_;
  Producer producer_;
  SplitPipeline<Traits> splits_;
};

}  // namespace jit
