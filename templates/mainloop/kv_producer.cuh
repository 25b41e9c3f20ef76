// The producer of keys and values by TMA. It runs ahead of the products by as many stages as are free.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "mainloop/pipelines.cuh"
#include "mainloop/tile_boxes.cuh"
#include "ptx/bulk_copy.cuh"
#include "tiles/shared_words.cuh"

namespace jit {

/// The default `Beside`: a tile info is all that accompanies a tile of keys.
struct NoExtras {
  /// Writes data by lanes, once the stage is acquired.
  JIT_DEVICE void write(int /*stage*/) const {}
  /// Copies that also complete at barrier `full`: announced before those of the tile, and started after them.
  JIT_DEVICE void expect(unsigned /*full*/) const {}
  JIT_DEVICE void start(int /*stage*/, unsigned /*full*/) const {}
};

/// The producer side of StoredKvPipelines. Traits are those of mainloop/pipelines.cuh and tile_boxes.cuh; `Maps` is an
/// argument of k_map and v_map; `Box` is the position of a tile. By a whole warp.
template <class Traits, class Maps, class Box>
class KvProducer {
 public:
  using Place = Box;

  JIT_DEVICE KvProducer(const AttentionParams&, const Maps& maps, unsigned smem)
      : maps_(maps), smem_(smem), pipelines_(smem) {}

  /// Acquires a stage and loads a tile of keys.
  template <class Beside = NoExtras>
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

  /// Writes NaN instead of a tile of keys, so that all scores with it are NaN.
  template <class Beside = NoExtras>
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

  /// Sets the box of the values that load_values() loads next, if any.
  JIT_DEVICE void put_values(const Box& box, bool has_values = true) {
    values_ = box;
    has_values_ = has_values;
  }
  /// Loads the values of the last put_values(), unless they have been loaded.
  JIT_DEVICE void load_values() {
    if (!has_values_) return;
    load_values(values_);
    has_values_ = false;
  }
  template <class Beside = NoExtras>
  JIT_DEVICE void load_values(const Box& box, const Beside& beside = {}) {
    auto& v = pipelines_.v;
    v.producer_acquire();
    if constexpr (Traits::transposes_v) {
      if (lane_id() == 0) store_shared(value_info<Traits>(smem_, v.stage()), 1);
    }
    load_key_tile<Traits, typename Traits::StoredVTile>(v.tile(), v_map<Traits>(maps_), v.full(), box);
    beside.start(v.stage(), v.full());
    v.advance();
  }

  /// Commits a tile info without a tile.
  JIT_DEVICE void tell(int flags) {
    auto& k = pipelines_.k;
    k.producer_acquire();
    if (lane_id() == 0) store_key_info(stored_info<Traits>(smem_, k.stage()), {0, flags});
    k.producer_commit();
    k.advance();
  }
  /// Tells the converters that transpose values that no more follow.
  JIT_DEVICE void commit_end_of_values() const {
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

 protected:
  const Maps& maps_;
  const unsigned smem_;
  StoredKvPipelines<Traits> pipelines_;
  Box values_{};  // the next values to load, if has_values_
  bool has_values_ = false;
};

}  // namespace jit
