// Tiles of keys that are values, too: each column of them is read as a key first, and those of values then again by the
// warpgroup that owns them. A tile's columns come, and are done with, in parts: one with all that are keys alone, which
// are the first to go, and the parts of values, in turns those of either warpgroup.
//
// A Traits is that of a kernel family: its KTile, how many stages_k and key_parts, which columns a part has, and whether the
// first one is of KeysAlone; the others are VPart. One pipeline has all stages, and each part has barriers of its own.
#pragma once

#include "base/prelude.cuh"
#include "mainloop/kv_producer.cuh"
#include "mainloop/pipelines.cuh"
#include "mainloop/tile_boxes.cuh"

namespace jit {

/// A place in the pipeline of tiles.
template <class Traits>
using KeyTiles = Pipeline<Traits::stages_k, Traits::KTile::bytes>;

/// The pipeline of a part, at the same place.
template <class Traits>
JIT_DEVICE KeyTiles<Traits> part_of(const KeyTiles<Traits>& tiles, int part) {
  using Tile = typename Traits::KTile;
  return tiles.moved(Traits::part_column(part) / Tile::columns * Tile::panel_bytes,
                     part * Traits::stages_k * 8);
}

/// Calls f(pipeline) for those of all parts.
template <class Traits, class F>
JIT_DEVICE void for_each_part(const KeyTiles<Traits>& tiles, F f) {
#pragma unroll
  for (int part = 0; part < Traits::key_parts; ++part) f(part_of<Traits>(tiles, part));
}

/// The side of who fills the pipeline by TMA, as KvProducer has it. A tile is told of by a pipeline of its own, whose
/// stages are tile infos. By a whole warp.
template <class Traits, class Maps, class Box>
class PartProducer {
 public:
  JIT_DEVICE PartProducer(const Maps& maps, unsigned smem)
      : maps_(maps), infos_(smem), tiles_(smem, Traits::layout.k) {}

  /// Tells of a tile of keys, and loads its parts, each once there is room for it.
  JIT_DEVICE void load_keys(const Box& box, const KeyTileInfo& info) {
    infos_.put(info);
    if constexpr (Traits::has_keys_alone) load<typename Traits::KeysAlone>(0, box);
#pragma unroll
    for (int part = Traits::has_keys_alone; part < Traits::key_parts; ++part)
      load<typename Traits::VPart>(part, box);
    tiles_.advance();
  }
  /// They are keys.
  JIT_DEVICE void load_values() const {}

  /// A tile info without a tile.
  JIT_DEVICE void tell(int flags) { infos_.put({0, flags}); }

 private:
  template <class Tile>
  JIT_DEVICE void load(int part, const Box& box) const {
    const auto stage = part_of<Traits>(tiles_, part);
    stage.producer_acquire();  // mutate: PartLoadedBeforeItIsEmpty
    if (lane_id() == 0) mbarrier_arrive_expect_tx(stage.full(), Tile::bytes);
    __syncwarp();
    start_boxes<Traits, Tile>(stage.tile(), k_map<Traits>(maps_), stage.full(), box,
                              Traits::part_column(part));
  }

  const Maps& maps_;
  KeyInfoPipeline<Traits> infos_;
  KeyTiles<Traits> tiles_;
};

}  // namespace jit
