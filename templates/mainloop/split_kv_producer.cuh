// The producer warp of splits: it plans the next tiles of keys and values, and loads them by TMA.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "mainloop/kv_producer.cuh"
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

/// A Traits is that of the Producer and of split_keys/split_pipeline.cuh; `values_in_keys` says whether values are columns
/// of the keys, and not loaded.
template <class Traits, class Producer = KvProducer<Traits, KernelMemory, RowPlace>>
class SplitKvProducer {
  using Config = typename Traits::Config;

 public:
  JIT_DEVICE SplitKvProducer(const AttentionParams& params, const KernelMemory& memory, unsigned char* bytes,
                             unsigned smem)
      : params_(params), producer_(memory, smem), splits_(bytes, smem) {}

  /// Walks through the block's share of the work. Each tile of keys is followed by the values of the one before, from
  /// one split to the next: scores are computed first. A split without keys comes behind them.
  template <class Work>
  JIT_DEVICE void run(Work& work) {
    for_each_split<Config>(params_, work, [&](const Info<Config>& info, WorkTileKeys<Config>& tiles) {
      load_tiles(work.work_tile, info, tiles);
    });
    producer_.load_values();
    if constexpr (Traits::upcasts) producer_.tell(key_info_no_more);  // mutate: ConvertersWithoutEnd
    splits_.put_end();
  }

 private:
  // All of a split.
  JIT_DEVICE void load_tiles(const SplitWorkTile& work_tile, const Info<Config>& info,
                             WorkTileKeys<Config>& tiles) {
    splits_.put(info);  // queries are longer on their way than keys
    if (!tiles.has(0)) {
      producer_.load_values();  // without values no thread reaches this code
      return producer_.tell(key_info_none);
    }
    RowPlace box = box_at(work_tile, info, tiles.key(0));
    while (tiles.has(0)) {
      producer_.load_keys(box, info_of(tiles));
      // The next tile's pages are on the way while values wait for room.
      const RowPlace next = tiles.has(1) ? box_at(work_tile, info, tiles.key(1)) : box;
      producer_.load_values();
      if constexpr (!Traits::values_in_keys) producer_.put_values(box);
      box = next;
      tiles.advance();
    }
  }

  JIT_DEVICE RowPlace box_at(const SplitWorkTile& work_tile, const Info<Config>& info, int k_begin) const {
    if constexpr (has_key_lists<Config>) {
      return listed_box<Traits>(params_, work_tile, info.owner, k_begin);
    } else {
      return key_box<Traits>(params_, work_tile, k_begin);
    }
  }

  const AttentionParams& params_;
  Producer producer_;
  SplitPipeline<Traits> splits_;
};

}  // namespace jit
