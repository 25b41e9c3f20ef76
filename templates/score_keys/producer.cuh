// The producer: q and k by TMA, scales of keys by cp.async. By one warp.
#pragma once

#include "ptx/cp_async.cuh"
#include "ptx/mbarrier.cuh"
#include "score_keys/work.cuh"
#include "score_mainloop/mainloop.cuh"
#include "score_mainloop/roles.cuh"
#include "tiles/shared_words.cuh"

namespace jit {

template <class Traits>
class ScoreKeysProducer {
  using Config = typename Traits::Config;
  using Q = typename Traits::Q;
  using K = typename Traits::K;
  static constexpr int box_keys = score_keys_box(Config::page_size), boxes = score_keys_tile / box_keys;
  static constexpr bool is_paged = Config::page_size > 0;

 public:
  JIT_DEVICE ScoreKeysProducer(const ScoreKeysParams& params, unsigned smem)
      : params_(params), smem_(smem), q_(smem, Traits::layout.q), k_(smem, Traits::layout.k) {}

  JIT_DEVICE void run() {
    for_each_item(params_.items, [&](int i) {
      const ScoreKeysItem<Traits> item(params_, i);
      if (item.is_empty()) return;
      load_stage<Q, score_keys_columns, Config::heads>(q_, params_.q, [&](int row) {
        return RowPlace{0, item.first_token + row / Config::heads, item.entry};
      });
#pragma unroll 1
      for (int tile = item.tile_begin; tile < item.tile_end; ++tile) load_keys(item, tile);
    });
  }

 private:
  JIT_DEVICE void load_keys(const ScoreKeysItem<Traits>& item, int tile) {
    // A lane has the page of a box. The table is read ahead of the wait for room.
    const int first = tile * score_keys_tile;
    int page = 0, row = first + lane_id() % boxes * box_keys;
    if constexpr (is_paged) {
      const int place = row / Config::page_size;
      page = place < params_.table_pages ? params_.page_table[item.entry * params_.table_stride + place] : -1;
      row %= Config::page_size;
    }
    const bool is_there = page >= 0 && page < params_.pages;
    // A page that is not there is read as zeros.
    load_stage<K, score_keys_tile, box_keys, BoxesBy::lanes>(
        k_, params_.k,
        [&](int) {
          return RowPlace{row, 0, is_there ? page : params_.pages};
        },
        [&] { load_scales(first, page, row, is_there); });
  }

  // Loads the scales of the keys from `first` on, of which each lane has the place of a box. Addresses of dense keys wait for
  // nothing: this warp brings a tile in the time of its products, 1,100 clocks.
  JIT_DEVICE void load_scales(int first, int page, int row, bool is_there) const {
    constexpr int turns = score_keys_tile / warp_size;
    if constexpr (is_paged) {
#pragma unroll 1
      for (int i = 0; i < turns; ++i) {
        const int key = i * warp_size + lane_id(), box = key / box_keys, in_box = key % box_keys;
        const int box_page = __shfl_sync(full_warp, page, box), box_row = __shfl_sync(full_warp, row, box);
        const bool has_page = __shfl_sync(full_warp, is_there, box) != 0;
        load_scale(first, key, has_page,
                   box_page * params_.scale_page + (box_row + in_box) * params_.scale_key);
      }
    } else {
#pragma unroll
      for (int i = 0; i < turns; ++i) {
        const int key = i * warp_size + lane_id();
        load_scale(first, key, true, (first + key) * params_.scale_key);
      }
    }
    if constexpr (Config::has_scales) cp_async_mbarrier_arrive(k_.full());  // mutate: NobodyWaitsForScales
    __syncwarp();                                                           // mutate: ScalesOfOtherLanes
  }

  // Loads the scale at `at` of key `key` of the tile.
  JIT_DEVICE void load_scale(int first, int key, bool has_page, long long at) const {
    const unsigned target =
        smem_ + Traits::layout.scales + static_cast<unsigned>((k_.stage() * score_keys_tile + key) * 4);
    const bool is_key = first + key < params_.columns;
    if (!has_page || !Config::has_scales) {
      store_shared(target, has_page ? __float_as_int(1.0f) : static_cast<int>(scale_of_no_key));
    } else {
      const float* const own = params_.k_scale;
      cp_async_zfill<4>(target, is_key ? own + at : own, is_key);
    }
  }

  const ScoreKeysParams& params_;
  const unsigned smem_;
  typename Traits::QPipeline q_;
  typename Traits::KPipeline k_;
};

}  // namespace jit
