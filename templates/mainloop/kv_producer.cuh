// The producer of keys and values by TMA, which runs ahead of the products as far as the pipelines have free stages.
#pragma once

#include "base/prelude.cuh"
#include "mainloop/pipelines.cuh"
#include "mainloop/tile_boxes.cuh"
#include "ptx/bulk_copy.cuh"
#include "tiles/shared_words.cuh"

namespace jit {

/// Nothing comes with a tile of keys beside its tile info.
struct NothingBeside {
  /// Written by lanes, once there is room in the stage.
  JIT_DEVICE void write(int /*stage*/) const {}
  /// Copies for which the barrier `full` waits, too: announced before the tile's are started, and started behind them.
  JIT_DEVICE void expect(unsigned /*full*/) const {}
  JIT_DEVICE void start(int /*stage*/, unsigned /*full*/) const {}
};

/// The side of who fills the pipelines. A Traits is that of mainloop/pipelines.cuh and tile_boxes.cuh; `Maps` are
/// what k_map and v_map know the maps of; `Box` is where a tile lies. By a whole warp.
template <class Traits, class Maps, class Box>
class KvProducer {
 public:
  JIT_DEVICE KvProducer(const Maps& maps, unsigned smem) : maps_(maps), smem_(smem), pipelines_(smem) {}

  /// Loads a tile of keys once there is room for it.
  template <class Beside = NothingBeside>
  JIT_DEVICE void load_keys(const Box& box, const KeyTileInfo& info, const Beside& beside = {}) {
    auto& k = pipelines_.k;
    k.producer_acquire();  // mutate: LoadsKBeforeItIsEmpty
    beside.write(k.stage());
    k.producer_commit_with_copies();
    if (lane_id() == 0) store_key_info(stored_info<Traits>(smem_, k.stage()), info);
    beside.expect(k.full());
    load_key_tile<Traits, typename Traits::StoredKTile>(k.tile(), k_map<Traits>(maps_), k.full(), box);
    beside.start(k.stage(), k.full());
    k.advance();
  }

  /// Leaves NaN in place of a tile of keys, so that all scores with it are NaN.
  template <class Beside = NothingBeside>
  JIT_DEVICE void poison_keys(const KeyTileInfo& info, const Beside& beside = {}) {
    constexpr int words = Traits::StoredKTile::bytes / 4;
    auto& k = pipelines_.k;
    k.producer_acquire();
    beside.write(k.stage());
    for (int word = lane_id(); word < words; word += warp_size) store_shared(k.tile() + word * 4, -1);
    if (lane_id() == 0) store_key_info(stored_info<Traits>(smem_, k.stage()), info);
    beside.expect(k.full());
    beside.start(k.stage(), k.full());
    fence_proxy_async_shared();  // mutate: PoisonUnseen
    k.producer_commit();
    k.advance();
  }

  /// Says where the values lie that load_values() is to load, if there are some.
  JIT_DEVICE void put_values(const Box& box, bool has_values = true) {
    values_ = box;
    has_values_ = has_values;
  }
  /// Loads those that were put, if there are some that it has not.
  JIT_DEVICE void load_values() {
    if (!has_values_) return;
    load_values(values_);
    has_values_ = false;
  }
  JIT_DEVICE void load_values(const Box& box) {
    auto& v = pipelines_.v;
    v.producer_acquire();
    if constexpr (Traits::transposes_v) {
      if (lane_id() == 0) store_shared(value_info<Traits>(smem_, v.stage()), 1);
    }
    load_key_tile<Traits, typename Traits::StoredVTile>(v.tile(), v_map<Traits>(maps_), v.full(), box);
    v.advance();
  }

  /// A tile info without a tile.
  JIT_DEVICE void tell(int flags) {
    auto& k = pipelines_.k;
    k.producer_acquire();
    if (lane_id() == 0) store_key_info(stored_info<Traits>(smem_, k.stage()), {0, flags});
    k.producer_commit();
    k.advance();
  }
  /// Tells those who transpose values that there are none any more.
  JIT_DEVICE void tell_no_values() const {
    if constexpr (Traits::transposes_v) {
      const auto& v = pipelines_.v;
      v.producer_acquire();
      // mutate: NoEndOfValues
      if (lane_id() == 0) store_shared(value_info<Traits>(smem_, v.stage()), 0);
      v.producer_commit();
    }
  }

  /// Waits for the next tile info of keys that another warp loads, and releases it.
  JIT_DEVICE KeyTileInfo take_info() {
    auto& k = pipelines_.k;
    k.consumer_wait();
    const KeyTileInfo info = load_key_info(stored_info<Traits>(smem_, k.stage()));
    k.consumer_release();
    k.advance();
    return info;
  }

 private:
  const Maps& maps_;
  const unsigned smem_;
  StoredKvPipelines<Traits> pipelines_;
  Box values_{};  // that are still to be loaded
  bool has_values_ = false;
};

}  // namespace jit
