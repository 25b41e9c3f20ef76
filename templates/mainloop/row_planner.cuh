// The planner warp: it finds the next rows of keys and their addresses for the warps that copy them row by row.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "mainloop/pipelines.cuh"
#include "mainloop/row_plans.cuh"
#include "problem/paged_kv.cuh"
#include "scheduling/split_tile_scheduler.cuh"
#include "split_keys/list_tiles.cuh"
#include "split_keys/split_pipeline.cuh"
#include "tiles/shared_words.cuh"

namespace jit {

/// Walks through the block's work, and tells the others of the block. A Traits is that of a kernel family: its Config, what
/// mainloop/panel_producer.cuh wants, and split_keys/split_pipeline.cuh.
template <class Traits>
class RowPlanner {
  using Config = typename Traits::Config;
  static constexpr int per_lane = Config::tile_kv / warp_size;

 public:
  JIT_DEVICE RowPlanner(const AttentionParams& params, unsigned char* bytes, unsigned smem)
      : params_(params), smem_(smem), infos_(smem), plans_(smem), splits_(bytes, smem) {}

  /// Walks through the block's share of the work.
  template <class Work>
  JIT_DEVICE void run(Work& work) {
    for_each_split<Config, RowTiles<Config>>(
        params_, work,
        [&](const Info<Config>& info, RowTiles<Config>& tiles) { plan_tiles(work.work_tile, info, tiles); });
    plans_.put_end();
    splits_.put_end();
  }

 private:
  // All of a split.
  JIT_DEVICE void plan_tiles(const SplitWorkTile& work_tile, const Info<Config>& info,
                             RowTiles<Config>& tiles) {
    splits_.put(info);  // queries are longer on their way than keys
    if (!tiles.has(0)) return tell({0, key_info_none}, tiles);
    while (tiles.has(0)) {
      int numbers[per_lane];
      find_rows(work_tile, info, tiles, numbers);
      const int batch = Config::sequences_kv == SequenceKind::dense ? work_tile.batch : 0;
      plans_.put({batch, work_tile.kv_head, !tiles.has(1)}, numbers);
      tell(info_of(tiles), tiles);
      tiles.advance();
    }
  }

  // Numbers of the rows of a tile. What a page table says may be any number.
  JIT_DEVICE void find_rows(const SplitWorkTile& work_tile, const Info<Config>& info,
                            const RowTiles<Config>& tiles, int (&numbers)[per_lane]) const {
#pragma unroll
    for (int i = 0; i < per_lane; ++i) {
      const int key = tiles.key(0) + i * warp_size + reread_lane();
      numbers[i] = -1;
      if (key >= work_tile.kv.length) continue;
      RowPlace place;
      if constexpr (has_key_lists<Config>) {
        place = Config::Lists::template place_of<Config>(params_, info.owner, work_tile.kv_head,
                                                         tiles.own_position(i));
        if (place.batch < 0) continue;
      } else {
        place = PagedKv<Config>(params_).place(work_tile.batch, work_tile.kv_head, work_tile.kv.begin + key);
        if constexpr (Traits::has_pages) expect_page<Config>(params_, work_tile, key, 1, place.batch);
      }
      if (!PagedKv<Config>(params_).exists(place.batch)) continue;
      numbers[i] = Traits::has_pages ? place.batch * Config::page_size + place.seq : place.seq;
    }
  }

  JIT_DEVICE void tell(const KeyTileInfo& tile, const RowTiles<Config>& tiles) {
    if constexpr (has_key_lists<Config>) {
      infos_.put(tile, [&](int stage) { write_list(tile, tiles, list_words_of<Traits>(smem_, stage)); });
    } else {
      infos_.put(tile);
    }
  }
  // Writes where the keys of a tile stand, for who asks masks and scores, and who sees them, to shared address `words`.
  JIT_DEVICE void write_list(const KeyTileInfo& tile, const RowTiles<Config>& tiles, unsigned words) const {
    if ((tile.flags & key_info_none) != 0) return;
    if (Config::Score::is_identity && (tile.flags & key_info_partial) == 0) return;
#pragma unroll
    for (int i = 0; i < Config::tile_kv / warp_size; ++i) {
      const unsigned own = words + (i * warp_size + reread_lane()) * 4;
      store_shared(own, tiles.own_position(i));
      if constexpr (Config::Lists::queries > 1)
        store_shared(own + Config::tile_kv * 4, static_cast<int>(tiles.own_members(i)));
    }
  }

  const AttentionParams& params_;
  const unsigned smem_;
  KeyInfoPipeline<Traits> infos_;
  RowPlans<Traits> plans_;
  SplitPipeline<Traits> splits_;
};

/// The work of a warp that copies rows: of all tiles that are planned.
template <class Traits, class Copies>
JIT_DEVICE void copy_planned_rows(const AttentionParams& params, unsigned smem, int warp) {
  RowPlans<Traits> plans(smem);
  Copies copies(params, smem, warp);
  for (RowPlan plan; plans.take(plan);) copies.copy_tile(plan, plans);
  copies.finish();
}

}  // namespace jit
