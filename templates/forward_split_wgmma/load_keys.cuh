// The warp that loads keys and values by TMA, and finds out what comes next.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "forward_split_wgmma/pipelines.cuh"
#include "forward_split_wgmma/tensor_maps.cuh"
#include "forward_split_wgmma/traits.cuh"
#include "problem/sequences.cuh"
#include "split_keys/key_boxes.cuh"
#include "split_keys/work_list.cuh"

namespace jit::forward_split_wgmma {

template <class Config>
using Work = WorkList<Config, KernelTraits<Config>::tile_rows>;

template <class Config>
class KeyProducer {
  using Traits = KernelTraits<Config>;
  using Tiles = LoadedTiles<Config>;

 public:
  __device__ __forceinline__ KeyProducer(const AttentionParams& params, const KernelMemory& memory,
                                         unsigned char* bytes, unsigned smem)
      : params_(params), memory_(memory), smem_(smem), pipelines_(smem), splits_(bytes, smem) {}

  /// Walks through the block's share of the work. Each tile of keys is followed by the values of the one before, from
  /// one split to the next: scores are computed first. A split without keys comes behind them.
  __device__ __forceinline__ void run(Work<Config>& work) {
    for_each_split<Config>(params_, work, [&](const Info<Config>& info, WorkTileKeys<Config>& tiles) {
      load_tiles(work.work_tile, info, tiles);
    });
    load_values();
    if constexpr (Traits::converts) info_of_keys(key_info_end);  // mutate: ConvertersWithoutEnd
    splits_.put_end();
  }

 private:
  // All of a split.
  __device__ __forceinline__ void load_tiles(const SplitWorkTile& work_tile, const Info<Config>& info,
                                             WorkTileKeys<Config>& tiles) {
    splits_.put(info);  // queries are longer on their way than keys
    if (!tiles.has(0)) {
      load_values();  // without them nobody comes to this code, to make room for what follows
      return info_of_keys(key_info_none);
    }
    RowPlace box = box_place<Traits>(params_, work_tile, tiles.key(0));
    while (tiles.has(0)) {
      load_k(box, info_of(tiles));
      // The next tile's pages are on the way while values wait for room.
      const RowPlace next = tiles.has(1) ? box_place<Traits>(params_, work_tile, tiles.key(1)) : box;
      load_values();
      values_ = box;
      has_values_ = true;
      box = next;
      tiles.advance();
    }
  }

  __device__ __forceinline__ void load_k(const RowPlace& box, const KeyTileInfo& info) {
    pipelines_.k.producer_acquire();
    if (lane_id() == 0) store_key_info(Tiles::info(smem_, pipelines_.k.stage()), info);
    copy_boxes<Traits, typename Tiles::KTile>(pipelines_.k.tile(), memory_.k, pipelines_.k.full(), box);
    pipelines_.k.advance();
  }

  // Of the tile before, if there was one.
  __device__ __forceinline__ void load_values() {
    if (!has_values_) return;
    pipelines_.v.producer_acquire();
    copy_boxes<Traits, typename Tiles::VTile>(pipelines_.v.tile(), memory_.v, pipelines_.v.full(), values_);
    pipelines_.v.advance();
    has_values_ = false;
  }

  // A tile info without a tile.
  __device__ __forceinline__ void info_of_keys(int flags) {
    pipelines_.k.producer_acquire();
    if (lane_id() == 0) store_key_info(Tiles::info(smem_, pipelines_.k.stage()), {0, flags});
    pipelines_.k.producer_commit();
    pipelines_.k.advance();
  }

  const AttentionParams& params_;
  const KernelMemory& memory_;
  const unsigned smem_;
  typename Tiles::Pipelines pipelines_;
  SplitPipeline<Traits> splits_;
  RowPlace values_{0, 0, 0};  // that are still to be loaded
  bool has_values_ = false;
};

}  // namespace jit::forward_split_wgmma
