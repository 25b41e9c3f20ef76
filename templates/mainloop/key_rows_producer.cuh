// The warps that load keys of splits by cp.async, row by row, to tiles that wgmma reads: each has some of the rows of
// every tile. Where rows lie in pages of few rows this is faster than boxes.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "mainloop/key_row_places.cuh"
#include "mainloop/pipelines.cuh"
#include "pipeline/pipeline.cuh"
#include "problem/key_lists.cuh"
#include "ptx/bulk_copy.cuh"
#include "ptx/cp_async.cuh"
#include "scheduling/split_tile_scheduler.cuh"
#include "split_keys/split_pipeline.cuh"
#include "split_keys/work_tile_keys.cuh"
#include "tiles/shared_words.cuh"

namespace jit {

/// Copies tiles of keys that are values, too, by cp.async, row by row, wherever rows lie: each lane knows where some of
/// them do. They go to the pipelines of panels (mainloop/panel_producer.cuh), a group of copies for each stage. While
/// those of one tile are on their way the next ones are started. Warps have groups of rows in turns.
template <class Traits>
class KeyRowCopies : public KeyRowPlaces<Traits> {
  using Places = KeyRowPlaces<Traits>;
  using Places::group_rows, Places::rows, Places::rows_per_lane, Places::params_, Places::row_at,
      Places::tile_row;
  using typename Places::Config;
  using Element = typename Config::Element;
  static constexpr int tile_copies = Traits::k_panels + Traits::v_parts;  // groups

 public:
  using typename Places::Place;

  JIT_DEVICE KeyRowCopies(const AttentionParams& params, unsigned smem, int warp)
      : Places(params, warp), panels_(smem) {}

  /// Starts the copies of a tile, each once there is room for it; rows that there are not become zeros. Ends those of the
  /// tile before, and these, too, where it is the split's last.
  JIT_DEVICE void copy_tile(const Place& place, bool is_last) {
#pragma unroll
    for (int panel = 0; panel < Traits::k_panels; ++panel)
      start<typename Traits::KPanel, false>(panels_.k, place, Traits::first_key_column, 0);
#pragma unroll 1
    for (int part = 0; part < Traits::v_parts; ++part)
      start<typename Traits::VPart, true>(panels_.v, place, Traits::first_column(part), part);
    if (has_earlier_) end<tile_copies>(Traits::v_parts, true);  // mutate: EarlierTileNotWaitedFor
    has_earlier_ = !is_last;
    if (is_last) end<0>(0, false);  // mutate: LastTileNotWaitedFor
  }

 private:
  // Starts the copies of the columns from `first` on that a stage has, behind so many parts of values of the same tile, and
  // behind its columns that are keys alone, or these themselves.
  template <class Tile, bool is_behind_keys_alone, class Pipeline>
  JIT_DEVICE void start(Pipeline& pipeline, const Place& place, int first, int parts) {
    if (has_earlier_ && !pipeline.is_empty()) {
      end<0>(parts, is_behind_keys_alone);  // mutate: NothingEndedBeforeAWaitForRoom
      has_earlier_ = false;
    }
    pipeline.producer_acquire();
    copy<Tile>(pipeline.tile(), place, first);
    cp_async_commit_group();
    pipeline.advance();
  }

  // As many lanes have a row as a panel of it has chunks.
  template <class Tile>
  JIT_DEVICE void copy(unsigned tile, const Place& place, int first) const {
    constexpr int chunks = Tile::row_bytes / chunk_bytes, rows_at_once = warp_size / chunks;
    constexpr int per_chunk = ElementTraits<Element>::per_chunk;
    const int chunk = lane_id() % chunks, lane_row = lane_id() / chunks;
#pragma unroll
    for (int i = 0; i < rows_per_lane; ++i) {
      const auto* const own_row = row_at(place, i);
#pragma unroll 1
      for (int group = 0; group < minimum(warp_size, rows - i * warp_size); group += group_rows) {
        const unsigned group_tile = tile + tile_row(i * warp_size + group) * Tile::row_bytes;
#pragma unroll
        for (int r = 0; r < group_rows; r += rows_at_once) {
          const auto* row = reinterpret_cast<const Element*>(
              __shfl_sync(full_warp, reinterpret_cast<unsigned long long>(own_row), group + r + lane_row));
          const bool exists = row != nullptr;
          if (!exists) row = static_cast<const Element*>(params_.k);  // of which nothing is read
          const unsigned own = Tile::chunk_address(group_tile, r + lane_row, chunk);
#pragma unroll
          for (int panel = 0; panel < Tile::panels; ++panel) {
            const int column = first + panel * Tile::columns + chunk * per_chunk;
            cp_async_zfill<chunk_bytes>(own + panel * Tile::panel_bytes, row + column,
                                        exists && column < Config::head_dim);
          }
        }
      }
    }
  }

  // Waits until so many copies at most are on their way, and tells of the tile behind which so many parts of values
  // have been started; of keys alone a further stage has been if `has_next`.
  template <int on_the_way>
  JIT_DEVICE void end(int parts, bool has_next) const {
    cp_async_wait_group<on_the_way>();
    fence_proxy_async_shared();  // mutate: RowsWithoutProxyFence
#pragma unroll
    for (int panel = 0; panel < Traits::k_panels; ++panel) panels_.k.producer_commit_before(has_next ? 2 : 1);
#pragma unroll 1
    for (int part = Traits::v_parts; part > 0; --part) panels_.v.producer_commit_before(parts + part);
  }

  PanelPipelines<Traits> panels_;
  bool has_earlier_ = false;  // a tile whose copies have not been ended
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
    for_each_split<Config>(params_, work, [&](const Info<Config>& info, WorkTileKeys<Config>& tiles) {
      load_tiles(work.work_tile, info, tiles);
    });
    if (tells_) splits_.put_end();
  }

 private:
  // All of a split.
  JIT_DEVICE void load_tiles(const SplitWorkTile& work_tile, const Info<Config>& info,
                             WorkTileKeys<Config>& tiles) {
    if (tells_) splits_.put(info);  // queries are longer on their way than keys
    if (!tiles.has(0)) return tell({0, key_info_none}, info);
    auto place = copies_.place(work_tile, info, tiles.key(0));
    while (true) {
      const bool has_next = tiles.has(1);
      tell(info_of(tiles), info);
      copies_.copy_tile(place, !has_next);
      if (!has_next) return;
      place = copies_.place(work_tile, info, tiles.key(1));
      tiles.advance();
    }
  }

  JIT_DEVICE void tell(const KeyTileInfo& tile, const Info<Config>& info) {
    if (!tells_) return;
    if constexpr (has_key_lists<Config>) {
      infos_.put(tile, [&](int stage) { write_list(tile, info, list_words_of<Traits>(smem_, stage)); });
    } else {
      infos_.put(tile);
    }
  }
  // Writes where the keys of a tile stand, for who asks masks and scores, and who sees them, to shared address `words`.
  JIT_DEVICE void write_list(const KeyTileInfo& tile, const ListInfo& info, unsigned words) const {
    using Lists = typename Config::Lists;
    if ((tile.flags & key_info_none) != 0) return;
    if (Config::Score::is_identity && (tile.flags & key_info_partial) == 0) return;
#pragma unroll 1
    for (int i = lane_id(); i < Config::tile_kv; i += warp_size) {
      const int key = tile.k_begin + i;
      const int position =
          Lists::template position<Config>(params_, info.owner, info.batch, info.kv_head, key);
      store_shared(words + i * 4, position);
      if constexpr (Lists::queries > 1) {
        unsigned members = 0;
        if (position >= 0) members = Lists::members(params_.tensors, info.batch, info.kv_head, key);
        store_shared(words + (Config::tile_kv + i) * 4, static_cast<int>(members));
      }
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
