// The warp that loads keys and values by TMA, and finds out what comes next.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "forward_split_wgmma/rings.cuh"
#include "forward_split_wgmma/tensor_maps.cuh"
#include "forward_split_wgmma/traits.cuh"
#include "problem/kv_tiles.cuh"
#include "problem/sequences.cuh"
#include "problem/variable_sequences.cuh"
#include "ptx/bulk_tensor.cuh"
#include "split_keys/work_list.cuh"

namespace jit::forward_split_wgmma {

template <class Config>
using Work = WorkList<Config, KernelTraits<Config>::tile_rows>;

/// What the mask leaves of tiles of the scores of a unit, for KvTiles.
template <class Config>
struct UnitMask {
  const AttentionParams& params;
  const Unit& unit;

  __device__ __forceinline__ TileClass classify(const ScoreTile& tile) const {
    return jit::classify<Config>(params, unit, tile);
  }
  __device__ __forceinline__ int next_key(int q_begin, int q_end,
                                          int k) const requires has_next<typename Config::Mask> {
    return jit::next_key<Config>(params, unit, {q_begin, q_end, 0, 0}, k);
  }
};

/// Where the lane's box of a tile of keys or values begins: each lane copies one. A box lies in one page; without pages
/// there is one. Of a tile of no keys of the sequence nothing is copied, of one with some all boxes: those without keys
/// as zeros. What a page table says may be any number: TMA reads zeros, too, where there is no such page.
template <class Config>
__device__ __forceinline__ RowPlace box_place(const AttentionParams& params, const Unit& unit, int k_begin) {
  using Traits = KernelTraits<Config>;
  if constexpr (Traits::has_pages) {
    const int key = k_begin + lane_id() * Traits::box_rows, row = unit.kv.begin + key;
    const bool has_keys = lane_id() < Traits::boxes && key < unit.kv.length;
    const int page = has_keys ? VariableSequences<Config>(params).page(unit.batch, row) : -1;
    if (has_keys) expect_page<Config>(params, unit, key, Traits::box_rows, page);
    return {row % Config::page_size, unit.kv_head, page};
  } else {
    const bool is_ragged = Config::sequences_kv == SequenceKind::ragged;
    return {unit.kv.begin + k_begin + lane_id() * Traits::box_rows, unit.kv_head, is_ragged ? 0 : unit.batch};
  }
}

/// Starts the copies of a tile, whose bytes count at the barrier `full`. By a whole warp. All panels of a box are copied
/// side by side, because their rows lie side by side in memory.
template <class Config, class Tile>
__device__ __forceinline__ void copy_boxes(unsigned tile, const TensorMap& map, unsigned full,
                                           const RowPlace& box) {
  using Traits = KernelTraits<Config>;
  if (lane_id() == 0) mbarrier_arrive_expect_tx(full, Tile::bytes);
  __syncwarp();
#pragma unroll
  for (int first = 0; first < Traits::boxes * Tile::panels; first += warp_size) {
    const int index = (first + lane_id()) / Tile::panels, panel = (first + lane_id()) % Tile::panels;
    const int seq = __shfl_sync(full_warp, box.seq, index), batch = __shfl_sync(full_warp, box.batch, index);
    if (index >= Traits::boxes) break;
    cp_async_bulk_tensor_load(tile + panel * Tile::panel_bytes + index * Traits::box_rows * Tile::row_bytes,
                              map, full, panel * Tile::columns, seq, box.head, batch);
  }
}

template <class Config>
class KeyLoader {
  using Traits = KernelTraits<Config>;

 public:
  __device__ __forceinline__ KeyLoader(const AttentionParams& params, const KernelMemory& memory,
                                       unsigned char* bytes, unsigned smem)
      : params_(params), memory_(memory), smem_(smem), rings_(smem), parts_(bytes, smem) {}

  /// Walks through the block's share of the work. Each tile of keys is followed by the values of the one before, from
  /// one part to the next: scores are computed first.
  __device__ __forceinline__ void run(Work<Config>& work) {
    for (; work.has_unit(params_); work.next(params_)) {
      const UnitPart mine = work.part();
      if (!mine.is_mine) continue;
      if constexpr (Config::split_keys != 0) {
        load_spans(work, mine);
      } else {
        load_tiles(work, work.note(mine), mine.tile_begin, mine.tile_end);
      }
    }
    load_values();
    parts_.put_end();
  }

 private:
  // A part, one span after another; a unit without keys has one.
  __device__ __forceinline__ void load_spans(const Work<Config>& work, const UnitPart& mine) {
    int tile = mine.tile_begin;
    do {
      const int span_end = ((work.tiles.begin + tile) / span_tiles<Config> + 1) * span_tiles<Config>;
      const int end = minimum(mine.tile_end, span_end - work.tiles.begin);
      load_tiles(work, work.span_note(mine, work.tiles.begin + tile), tile, end);
      tile = end;
    } while (tile < mine.tile_end);
  }

  // Tiles [begin, end) of the unit's.
  __device__ __forceinline__ void load_tiles(const Work<Config>& work, const Note<Config>& note, int begin,
                                             int end) {
    const Unit& unit = work.unit;
    const UnitMask<Config> mask{params_, unit};
    const KeyRange keys{(work.tiles.begin + begin) * Config::tile_kv,
                        (work.tiles.begin + end) * Config::tile_kv};
    KvTiles<UnitMask<Config>, Config::tile_kv, 1> tiles(mask, queries_of<Config>(unit), keys, unit.kv.length);
    parts_.put(note);  // queries are longer on their way than keys
    if (!tiles.has(0)) return note_no_keys();
    RowPlace box = box_place<Config>(params_, unit, tiles.key(0));
    while (tiles.has(0)) {
      const bool has_next = tiles.has(1);
      load_k(box,
             {tiles.key(0), (tiles.is_partial() ? key_note_partial : 0) | (has_next ? 0 : key_note_last)});
      // The next tile's pages are on the way while values wait for room.
      const RowPlace next = has_next ? box_place<Config>(params_, unit, tiles.key(1)) : box;
      load_values();
      values_ = box;
      has_values_ = true;
      box = next;
      tiles.advance();
    }
  }

  __device__ __forceinline__ void load_k(const RowPlace& box, const KeyNote& note) {
    rings_.k.wait_empty();
    if (lane_id() == 0) store_key_note(key_note<Config>(smem_, rings_.k.stage()), note);
    copy_boxes<Config, typename Traits::KTile>(rings_.k.tile(), memory_.k, rings_.k.full(), box);
    rings_.k.advance();
  }

  // Of the tile before, if there was one.
  __device__ __forceinline__ void load_values() {
    if (!has_values_) return;
    rings_.v.wait_empty();
    copy_boxes<Config, typename Traits::VTile>(rings_.v.tile(), memory_.v, rings_.v.full(), values_);
    rings_.v.advance();
    has_values_ = false;
  }

  __device__ __forceinline__ void note_no_keys() {
    rings_.k.wait_empty();
    if (lane_id() == 0) store_key_note(key_note<Config>(smem_, rings_.k.stage()), {0, key_note_none});
    rings_.k.arrive_full();
    rings_.k.advance();
  }

  const AttentionParams& params_;
  const KernelMemory& memory_;
  const unsigned smem_;
  Rings<Config> rings_;
  PartRing<Config> parts_;
  RowPlace values_{0, 0, 0};  // that are still to be loaded
  bool has_values_ = false;
};

}  // namespace jit::forward_split_wgmma
