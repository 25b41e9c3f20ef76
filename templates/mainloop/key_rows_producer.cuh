// The warps that load keys of splits by cp.async, row by row, to tiles that wgmma reads: each has some of the rows of
// every tile. Where rows lie in pages of few rows this is faster than boxes.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "mainloop/key_parts.cuh"
#include "mainloop/pipelines.cuh"
#include "pipeline/pipeline.cuh"
#include "problem/paged_kv.cuh"
#include "ptx/bulk_copy.cuh"
#include "ptx/cp_async.cuh"
#include "scheduling/split_tile_scheduler.cuh"
#include "split_keys/split_pipeline.cuh"
#include "split_keys/work_tile_keys.cuh"

namespace jit {

/// Copies tiles by cp.async, row by row, wherever rows lie: each lane knows where some of them do. While one tile is on
/// its way the next one is started. Warps have groups of rows in turns.
template <class Traits>
class KeyRowCopies {
  using Config = typename Traits::Config;
  using Tile = typename Traits::KTile;
  using Element = typename Config::Element;
  static constexpr int group_rows = 8;  // whose swizzles differ: known when a group's rows are unrolled
  static constexpr int rows = Config::tile_kv / Traits::key_warps;  // of a warp
  static_assert(rows % group_rows == 0, "warps have the same number of groups of rows");
  static_assert(warp_size * chunk_bytes % Tile::row_bytes == 0,
                "a warp's width of chunks is of whole panels");
  static constexpr int rows_per_lane = (rows + warp_size - 1) / warp_size;
  static constexpr int chunks = Tile::panels * Tile::row_bytes / chunk_bytes;
  static constexpr int head_dim_chunks = Config::head_dim / ElementTraits<Element>::per_chunk;

 public:
  /// Rows of a lane, a warp's width apart among those of the warp: where they lie in which batch entry, or page, which
  /// is negative for those that there are not. No address yet: that would wait for the page table.
  struct Place {
    int head;
    int batch[rows_per_lane];
    int seq[rows_per_lane];
  };

  JIT_DEVICE KeyRowCopies(const AttentionParams& params, int warp) : params_(params), warp_(warp) {}

  JIT_DEVICE Place place(const SplitWorkTile& work_tile, int k_begin) const {
    Place place{.head = work_tile.kv_head};
#pragma unroll
    for (int i = 0; i < rows_per_lane; ++i) {
      const int own = i * warp_size + lane_id(), key = k_begin + tile_row(own),
                row = work_tile.kv.begin + key;
      place.batch[i] = -1;
      place.seq[i] = row;
      if (own >= rows || key >= work_tile.kv.length) continue;
      const RowPlace at = PagedKv<Config>(params_).place(work_tile.batch, work_tile.kv_head, row);
      place.batch[i] = at.batch;
      place.seq[i] = at.seq;
      if constexpr (Traits::has_pages) expect_page<Config>(params_, work_tile, key, 1, at.batch);
    }
    return place;
  }

  /// Starts the copy of a tile to the pipeline's stage; rows that there are not become zeros.
  JIT_DEVICE void start(const KeyTiles<Traits>& pipeline, const Place& place) const {
    constexpr int per_chunk = ElementTraits<Element>::per_chunk;
#pragma unroll
    for (int i = 0; i < rows_per_lane; ++i) {
      const auto* const own_row = row_at(place, i);
#pragma unroll 1
      for (int first = 0; first < minimum(warp_size, rows - i * warp_size); first += group_rows) {
        const unsigned group = pipeline.tile() + tile_row(i * warp_size + first) * Tile::row_bytes;
#pragma unroll
        for (int r = 0; r < group_rows; ++r) {
          const auto* row = reinterpret_cast<const Element*>(
              __shfl_sync(full_warp, reinterpret_cast<unsigned long long>(own_row), first + r));
          const bool exists = row != nullptr;
          if (!exists) row = static_cast<const Element*>(params_.k);      // of which nothing is read
          const unsigned own = Tile::chunk_address(group, r, lane_id());  // a warp's width is whole panels
#pragma unroll
          for (int c = 0; c < chunks; c += warp_size) {
            const int chunk = c + lane_id();
            if (chunks % warp_size == 0 || chunk < chunks)
              cp_async_zfill<chunk_bytes>(own + c * chunk_bytes / Tile::row_bytes * Tile::panel_bytes,
                                          row + chunk * per_chunk, exists && chunk < head_dim_chunks);
          }
        }
      }
    }
    cp_async_commit_group();
  }
  /// Behind `start`: ends the copy that was started before that one, and that one, too, where it is the split's last.
  JIT_DEVICE void finish_earlier(const KeyTiles<Traits>& tiles, bool is_last) {
    if (has_earlier_) end<1>(tiles, 1);  // mutate: EarlierTileNotWaitedFor
    has_earlier_ = !is_last;
    if (is_last) end<0>(tiles, 0);  // mutate: LastTileNotWaitedFor
  }
  /// Ahead of a wait for the pipeline's stage: consumers may need the tile before to make room.
  JIT_DEVICE void finish_before_waiting(const KeyTiles<Traits>& tiles) {
    bool is_empty = true;
    for_each_part<Traits>(tiles, [&](const auto& part) { is_empty = is_empty && part.is_empty(); });
    if (!has_earlier_ || is_empty) return;
    end<0>(tiles, 1);
    has_earlier_ = false;
  }

 private:
  // First element of a lane's row; null for one that there is not. What a page table says may be any number.
  JIT_DEVICE const Element* row_at(const Place& place, int i) const {
    const TensorStrides& strides = params_.k_strides;
    const int batch = place.batch[i];
    if (batch < 0 || !PagedKv<Config>(params_).exists(batch)) return nullptr;
    return static_cast<const Element*>(params_.k) +
           PagedKv<Config>::offset(strides, {place.seq[i], place.head, batch});
  }

  // The place of one of the warp's rows in the tile.
  JIT_DEVICE int tile_row(int own) const {
    // mutate: HalfOfTheRowsTwice
    return (own / group_rows * Traits::key_warps + warp_) * group_rows + own % group_rows;
  }

  // Waits until so many tiles at most are on their way, and tells of the one, so many stages back, that has come.
  template <int on_the_way>
  JIT_DEVICE void end(const KeyTiles<Traits>& tiles, int back) const {
    cp_async_wait_group<on_the_way>();
    fence_proxy_async_shared();  // mutate: RowsWithoutProxyFence
    for_each_part<Traits>(tiles, [&](const auto& part) { part.producer_commit_before(back); });
  }

  const AttentionParams& params_;
  const int warp_;
  bool has_earlier_ = false;  // a copy that has not been ended
};

/// A warp that copies keys of splits. All such warps walk through the block's work, and come to the same; the first one
/// tells the others of the block. A Traits is that of a kernel family: its Config, the KTile and the number of
/// key_warps, and what split_keys/split_pipeline.cuh wants.
template <class Traits>
class KeyRowsProducer {
  using Config = typename Traits::Config;

 public:
  JIT_DEVICE KeyRowsProducer(const AttentionParams& params, unsigned char* bytes, unsigned smem, int warp)
      : params_(params),
        tells_(Traits::key_warps == 1 || warp == 0),  // mutate: BothWarpsLeaveInfos
        infos_(smem),
        copies_(params, warp),
        tiles_(smem, Traits::layout.k),
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
    if (!tiles.has(0)) return tell({0, key_info_none});
    auto place = copies_.place(work_tile, tiles.key(0));
    while (true) {
      const bool has_next = tiles.has(1);
      copies_.finish_before_waiting(tiles_);  // mutate: NothingEndedBeforeAWaitForRoom
      for_each_part<Traits>(tiles_, [](const auto& part) { part.producer_acquire(); });
      tell(info_of(tiles));
      copies_.start(tiles_, place);
      if (has_next)
        place = copies_.place(work_tile, tiles.key(1));  // pages are looked up while the tile is on its way
      copies_.finish_earlier(tiles_, !has_next);
      tiles_.advance();
      if (!has_next) return;
      tiles.advance();
    }
  }

  JIT_DEVICE void tell(const KeyTileInfo& info) {
    if (tells_) infos_.put(info);
  }

  const AttentionParams& params_;
  const bool tells_;  // whether the warp tells the others of the block
  KeyInfoPipeline<Traits> infos_;
  KeyRowCopies<Traits> copies_;
  KeyTiles<Traits> tiles_;
  SplitPipeline<Traits> splits_;
};

}  // namespace jit
