// The producer of keys and values by TMA whose stages are panels of a tile, since a tile of wide rows is too large for
// a stage. The products of the first panels of keys run while the last ones are still being copied.
#pragma once

#include "base/prelude.cuh"
#include "mainloop/kv_producer.cuh"
#include "mainloop/pipelines.cuh"
#include "mainloop/tile_boxes.cuh"

namespace jit {

/// The side of who fills the pipelines of panels, as KvProducer has it: a Traits is that, too, and says what the stages
/// are of: the panels of keys, KPanel, from Traits::first_key_column on, and of values VPart, the parts of the output's
/// columns in the order of Traits::first_column. Where `values_in_keys` these are keys, too, and come before the panels. A tile of keys is told of by a pipeline of its own, whose stages are tile infos. By
/// a whole warp.
template <class Traits, class Maps, class Box>
class PanelProducer {
  using KPanel = typename Traits::KPanel;
  using VPart = typename Traits::VPart;

 public:
  using Place = Box;

  JIT_DEVICE PanelProducer(const AttentionParams&, const Maps& maps, unsigned smem)
      : maps_(maps), smem_(smem), infos_(smem), panels_(smem) {}

  /// Tells of a tile of keys, and loads its panels, each once there is room for it.
  template <class Beside = NoExtras>
  JIT_DEVICE void load_keys(const Box& box, const KeyTileInfo& info, const Beside& beside = {}) {
    auto& k = infos_.k;
    k.producer_acquire();
    beside.write(k.stage());
    if (lane_id() == 0) store_key_info(key_tile_info<Traits>(smem_, k.stage()), info);
    beside.expect(k.full());
    k.producer_commit();
    beside.start(k.stage(), k.full());
    k.advance();
    if constexpr (Traits::values_in_keys) load_values(box);
#pragma unroll 1
    for (int panel = 0; panel < Traits::k_panels; ++panel)
      load<KPanel>(panels_.k, k_map<Traits>(maps_), Traits::first_key_column + panel * KPanel::columns, box,
                   first_key_box());
  }

  /// Asks that a tile of keys that are values, too, comes to the L2 cache.
  JIT_DEVICE void prefetch_keys(const Box& box) const {
    constexpr int panels = Traits::v_parts * VPart::panels + Traits::k_panels;
    prefetch_boxes<Traits, panels, VPart::columns>(k_map<Traits>(maps_), box);
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
#pragma unroll 1
    for (int part = 0; part < Traits::v_parts; ++part)
      load<VPart>(panels_.v, values_map(), Traits::first_column(part), box);
  }

  /// A tile info without a tile.
  JIT_DEVICE void tell(int flags) { infos_.put({0, flags}); }
  /// Nobody transposes values.
  JIT_DEVICE void commit_end_of_values() const {}

  /// Waits for the next tile info of keys that another warp loads, and releases it.
  JIT_DEVICE KeyTileInfo take_info() { return infos_.take(); }

 private:
  // Each block of a pair loads half of the keys.
  static JIT_DEVICE int first_key_box() {
    // mutate: KeysOfTheLeaderTwice
    return rank_in_tile<typename Traits::Config>() * (KPanel::rows / Traits::box_rows);
  }
  JIT_DEVICE decltype(auto) values_map() const {
    if constexpr (Traits::values_in_keys) {
      return k_map<Traits>(maps_);
    } else {
      return v_map<Traits>(maps_);
    }
  }
  // Loads the columns from `first` on that a stage has.
  template <class Tile, class Pipeline, class Map>
  static JIT_DEVICE void load(Pipeline& pipeline, const Map& map, int first, const Box& box,
                              int first_box = 0) {
    pipeline.producer_acquire();  // mutate: PanelLoadedBeforeItIsEmpty
    const unsigned full = pipeline.full();
    if constexpr (Traits::boxes > 1) {
      if (lane_id() == 0) expect_bytes(map, full, Tile::bytes);
      __syncwarp();
      start_boxes<Traits, Tile>(pipeline.tile(), map, full, box, first, first_box);
    } else if (lane_id() == 0) {
      mbarrier_arrive_expect_tx(full, Tile::bytes);
      load_tile<Tile>(pipeline.tile(), map, full, box, first);
    }
    pipeline.advance();
  }

  const Maps& maps_;
  const unsigned smem_;
  KeyInfoPipeline<Traits> infos_;
  PanelPipelines<Traits> panels_;
  Box values_{};  // that are still to be loaded
  bool has_values_ = false;
};

}  // namespace jit
