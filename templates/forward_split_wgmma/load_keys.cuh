// The warp that loads keys and values by TMA, and finds out what comes next.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "forward_split_wgmma/rings.cuh"
#include "forward_split_wgmma/tensor_maps.cuh"
#include "forward_split_wgmma/traits.cuh"
#include "problem/sequences.cuh"
#include "split_keys/key_boxes.cuh"
#include "split_keys/work_list.cuh"

namespace jit::forward_split_wgmma {

template <class Config>
using Work = WorkList<Config, KernelTraits<Config>::tile_rows>;

template <class Config>
class KeyLoader {
  using Traits = KernelTraits<Config>;
  using Tiles = LoadedTiles<Config>;

 public:
  __device__ __forceinline__ KeyLoader(const AttentionParams& params, const KernelMemory& memory,
                                       unsigned char* bytes, unsigned smem)
      : params_(params), memory_(memory), smem_(smem), rings_(smem), parts_(bytes, smem) {}

  /// Walks through the block's share of the work. Each tile of keys is followed by the values of the one before, from
  /// one part to the next: scores are computed first. A part without keys comes behind them.
  __device__ __forceinline__ void run(Work<Config>& work) {
    for_each_part<Config>(params_, work, [&](const Note<Config>& note, UnitTiles<Config>& tiles) {
      load_tiles(work.unit, note, tiles);
    });
    load_values();
    if constexpr (Traits::converts) note_of_keys(key_note_end);  // mutate: ConvertersWithoutEnd
    parts_.put_end();
  }

 private:
  // All of a part.
  __device__ __forceinline__ void load_tiles(const Unit& unit, const Note<Config>& note,
                                             UnitTiles<Config>& tiles) {
    parts_.put(note);  // queries are longer on their way than keys
    if (!tiles.has(0)) {
      load_values();  // without them nobody comes to this part, to make room for what follows
      return note_of_keys(key_note_none);
    }
    RowPlace box = box_place<Traits>(params_, unit, tiles.key(0));
    while (tiles.has(0)) {
      load_k(box, note_of(tiles));
      // The next tile's pages are on the way while values wait for room.
      const RowPlace next = tiles.has(1) ? box_place<Traits>(params_, unit, tiles.key(1)) : box;
      load_values();
      values_ = box;
      has_values_ = true;
      box = next;
      tiles.advance();
    }
  }

  __device__ __forceinline__ void load_k(const RowPlace& box, const KeyNote& note) {
    rings_.k.wait_empty();
    if (lane_id() == 0) store_key_note(Tiles::note(smem_, rings_.k.stage()), note);
    copy_boxes<Traits, typename Tiles::KTile>(rings_.k.tile(), memory_.k, rings_.k.full(), box);
    rings_.k.advance();
  }

  // Of the tile before, if there was one.
  __device__ __forceinline__ void load_values() {
    if (!has_values_) return;
    rings_.v.wait_empty();
    copy_boxes<Traits, typename Tiles::VTile>(rings_.v.tile(), memory_.v, rings_.v.full(), values_);
    rings_.v.advance();
    has_values_ = false;
  }

  // A note without a tile.
  __device__ __forceinline__ void note_of_keys(int flags) {
    rings_.k.wait_empty();
    if (lane_id() == 0) store_key_note(Tiles::note(smem_, rings_.k.stage()), {0, flags});
    rings_.k.arrive_full();
    rings_.k.advance();
  }

  const AttentionParams& params_;
  const KernelMemory& memory_;
  const unsigned smem_;
  typename Tiles::Rings rings_;
  PartRing<Traits> parts_;
  RowPlace values_{0, 0, 0};  // that are still to be loaded
  bool has_values_ = false;
};

}  // namespace jit::forward_split_wgmma
