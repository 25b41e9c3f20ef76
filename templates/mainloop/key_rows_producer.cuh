// The warps that load keys of splits by cp.async, row by row, to tiles that wgmma reads: each has some of the rows of
// every tile. Where rows lie in pages of few rows this is faster than boxes.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "mainloop/key_row_places.cuh"
#include "mainloop/pipelines.cuh"
#include "pipeline/pipeline.cuh"
#include "ptx/bulk_copy.cuh"
#include "ptx/cp_async.cuh"
#include "scheduling/split_tile_scheduler.cuh"
#include "split_keys/list_tiles.cuh"
#include "split_keys/split_pipeline.cuh"
#include "tiles/shared_words.cuh"

namespace jit {

/// Copies tiles of keys that are values, too, by cp.async, row by row, wherever rows lie: each lane knows where some of
/// them do. They go to the pipelines of panels (mainloop/panel_producer.cuh): a stage is full when the copies of all lanes
/// have come, for which nobody waits here. Who reads them fences. Warps have groups of rows in turns.
template <class Traits>
class KeyRowCopies : public KeyRowPlaces<Traits> {
  using Places = KeyRowPlaces<Traits>;
  using Places::group_rows, Places::rows, Places::rows_per_lane, Places::params_, Places::row_at,
      Places::tile_row;
  using typename Places::Config;
  using Element = typename Config::Element;
  static constexpr int per_chunk = ElementTraits<Element>::per_chunk;
  // As many lanes have a row as a panel of it has chunks.
  static constexpr int chunks = Traits::VPart::row_bytes / chunk_bytes, rows_at_once = warp_size / chunks,
                       steps = rows / rows_at_once;
  static_assert(Traits::KPanel::row_bytes == Traits::VPart::row_bytes, "panels are of the same width");

 public:
  using typename Places::Place;

  JIT_DEVICE KeyRowCopies(const AttentionParams& params, unsigned smem, int warp)
      : Places(params, warp), panels_(smem) {}

  /// Starts the copies of a tile, each once there is room for it; rows that there are not become zeros.
  JIT_DEVICE void copy_tile(const Place& place, bool /*is_last*/) {
    const Sources sources(*this, place);
#pragma unroll
    for (int panel = 0; panel < Traits::k_panels; ++panel)
      start<typename Traits::KPanel>(panels_.k, sources, Traits::first_key_column);
#pragma unroll
    for (int part = 0; part < Traits::v_parts; ++part)
      start<typename Traits::VPart>(panels_.v, sources, Traits::first_column(part));
  }

  /// Waits for all: behind the last tile.
  JIT_DEVICE void finish() const {
    cp_async_commit_group();
    cp_async_wait_group<0>();  // mutate: LastTileNotWaitedFor
  }

 private:
  // The rows of which the lane copies a chunk of each panel, from this chunk on.
  struct Sources {
    const Element* rows[steps];
    bool exist[steps];

    JIT_DEVICE Sources(const KeyRowCopies& copies, const Place& place) {
      const int chunk = lane_id() % chunks, lane_row = lane_id() / chunks;
      static_assert(rows_per_lane == 1, "each lane knows one row");
      const auto own_row = reinterpret_cast<unsigned long long>(copies.row_at(place, 0));
#pragma unroll
      for (int step = 0; step < steps; ++step) {
        const auto* row = reinterpret_cast<const Element*>(
            __shfl_sync(full_warp, own_row, step * rows_at_once + lane_row));
        exist[step] = row != nullptr;
        if (!exist[step]) row = static_cast<const Element*>(copies.params_.k);  // of which nothing is read
        rows[step] = row + chunk * per_chunk;
      }
    }
  };

  // Starts the copies of the columns from `first` on that a stage has.
  template <class Tile, class Pipeline>
  JIT_DEVICE void start(Pipeline& pipeline, const Sources& sources, int first) const {
    const int chunk = lane_id() % chunks, lane_row = lane_id() / chunks;
    pipeline.producer_acquire();  // mutate: RowsOverThoseThatAreMultiplied
    const unsigned tile = pipeline.tile();
#pragma unroll
    for (int step = 0; step < steps; ++step) {
      const int row = step * rows_at_once, group = row / group_rows * group_rows;
      const unsigned own = Tile::chunk_address(tile + tile_row(group) * Tile::row_bytes,
                                               row % group_rows + lane_row, chunk);
#pragma unroll
      for (int panel = 0; panel < Tile::panels; ++panel) {
        const int column = first + panel * Tile::columns;
        cp_async_zfill<chunk_bytes>(own + panel * Tile::panel_bytes, sources.rows[step] + column,
                                    sources.exist[step] && column + chunk * per_chunk < Config::head_dim);
      }
    }
    cp_async_mbarrier_arrive(pipeline.full());  // mutate: StageFullBeforeItsRowsCame
    pipeline.advance();
  }

  PanelPipelines<Traits> panels_;
};

/// A warp that copies keys of splits. All such warps walk through the block's work, and come to the same; the first one
/// tells the others of the block. A Traits is that of a kernel family: its Config, the number of key_warps, what
/// mainloop/panel_producer.cuh wants, and split_keys/split_pipeline.cuh.
template <class Traits, class Copies = KeyRowCopies<Traits>>
class KeyRowsProducer {
  using Config = typename Traits::Config;

 public:
  JIT_DEVICE KeyRowsProducer(const AttentionParams& params, unsigned char* bytes, unsigned smem, int warp)
      : params_(params),
        tells_(Traits::key_warps == 1 || warp == 0),  // mutate: BothWarpsLeaveInfos
        smem_(smem),
        infos_(smem),
        copies_(params, smem, warp),
        splits_(bytes, smem) {}

  /// Walks through the block's share of the work.
  template <class Work>
  JIT_DEVICE void run(Work& work) {
    for_each_split<Config, RowTiles<Config>>(
        params_, work, [&](const Info<Config>& info, RowTiles<Config>& tiles) {
          load_tiles(work.work_tile, info, tiles);
        });
    copies_.finish();
    if (tells_) splits_.put_end();
  }

 private:
  // All of a split.
  JIT_DEVICE void load_tiles(const SplitWorkTile& work_tile, const Info<Config>& info,
                             RowTiles<Config>& tiles) {
    if (tells_) splits_.put(info);  // queries are longer on their way than keys
    if (!tiles.has(0)) return tell({0, key_info_none}, tiles);
    auto place = copies_.place(work_tile, info, tiles, 0);
    while (true) {
      const bool has_next = tiles.has(1);
      tell(info_of(tiles), tiles);
      copies_.copy_tile(place, !has_next);
      if (!has_next) return;
      place = copies_.place(work_tile, info, tiles, 1);
      tiles.advance();
    }
  }

  JIT_DEVICE void tell(const KeyTileInfo& tile, const RowTiles<Config>& tiles) {
    if (!tells_) return;
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
      const unsigned own = words + (i * warp_size + lane_id()) * 4;
      store_shared(own, tiles.own_position(i));
      if constexpr (Config::Lists::queries > 1)
        store_shared(own + Config::tile_kv * 4, static_cast<int>(tiles.own_members(i)));
    }
  }

  const AttentionParams& params_;
  const bool tells_;  // whether the warp tells the others of the block
  const unsigned smem_;
  KeyInfoPipeline<Traits> infos_;
  Copies copies_;
  SplitPipeline<Traits> splits_;
};

}  // namespace jit
