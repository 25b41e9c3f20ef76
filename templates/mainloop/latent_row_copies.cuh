// Rows of 8-bit latents (problem/latent_rows.cuh) to tiles of 16-bit numbers that wgmma reads, converted on the way.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "mainloop/key_row_places.cuh"
#include "mainloop/pipelines.cuh"
#include "mainloop/stored_latents.cuh"
#include "problem/latent_rows.cuh"
#include "ptx/bulk_copy.cuh"
#include "ptx/cp_async.cuh"
#include "tiles/shared_words.cuh"

namespace jit {

/// In place of KeyRowCopies, where Config::StoredLatent is the format of rows. cp.async cannot convert: groups of
/// rows come as they are to stages of the warp's own, and go from there to the tile. So many bytes are on their way as cover
/// the latency of memory, and few registers hold them. A group is converted when its stage is needed again: those of a tile
/// are handed over while the next tile's are on their way, or at the end of the split.
template <class Traits>
class LatentRowCopies : public KeyRowPlaces<Traits> {
  using Places = KeyRowPlaces<Traits>;
  using Places::group_rows, Places::rows, Places::rows_per_lane, Places::params_, Places::row_at,
      Places::tile_row;
  using typename Places::Config;
  using Latent = typename Config::StoredLatent;
  using Element = typename Config::Element;
  static constexpr int groups = rows / group_rows;  // of a tile
  static constexpr int stored_bytes = Latent::row_bytes + Latent::page_end_bytes;
  static constexpr int row_stride = stored_row_stride(stored_bytes), group_bytes = group_rows * row_stride;
  static constexpr int piece_bytes = 8;  // the alignment of rows
  static_assert(group_rows == stored_stage_rows && groups > stored_stages, "a tile fills all stages");

 public:
  using typename Places::Place;

  JIT_DEVICE LatentRowCopies(const AttentionParams& params, unsigned smem, int warp)
      : Places(params, warp),
        panels_(smem),
        stages_(smem + Traits::layout.stored + warp * stored_stages * group_bytes) {}

  /// Starts the copies of a tile, and converts what came before; these, too, where it is the split's last.
  JIT_DEVICE void copy_tile(const Place& place, bool is_last) {
    static_assert(rows_per_lane == 1 && rows == warp_size, "each lane knows one row");
    const int steps = is_last ? groups + stored_stages : groups;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
      // The group that goes next takes the stage of the one that came first.
      if (has_earlier_ || step >= stored_stages) convert((step + groups - stored_stages) % groups);
      if (step < groups) copy(place, step * group_rows);
      cp_async_commit_group();  // at the end of none, so that as many are behind each
      slot_ = slot_ + 1 == stored_stages ? 0 : slot_ + 1;
    }
    has_earlier_ = !is_last;
  }

 private:
  JIT_DEVICE unsigned stage_place() const { return stages_ + slot_ * group_bytes; }

  // Starts the copies of a group of the warp's rows, from `first` on. A row that there is not becomes zeros, whose scales are
  // numbers.
  JIT_DEVICE void copy(const Place& place, int first) {
    const unsigned char* const own_row = row_at(place, 0);
    __syncwarp();  // mutate: StoredRowsOverThoseThatAreRead
#pragma unroll 1
    for (int row = 0; row < group_rows; ++row) {
      const auto* const start = reinterpret_cast<const unsigned char*>(
          __shfl_sync(full_warp, reinterpret_cast<unsigned long long>(own_row), first + row));
      const int seq = Latent::page_end_bytes == 0 ? 0 : __shfl_sync(full_warp, place.seq[0], first + row);
      const bool exists = start != nullptr;
      const auto* const source = exists ? start : static_cast<const unsigned char*>(params_.k);
      const unsigned target = stage_place() + row * row_stride;
#pragma unroll 1
      for (int i = 0; i * warp_size * piece_bytes < stored_bytes; ++i) {
        const int at = (i * warp_size + lane_id()) * piece_bytes;
        if (at >= stored_bytes) break;
        const unsigned char* from = source + at;
        if (at >= Latent::row_bytes)
          from = exists ? scales_of_row<Latent>(source, seq, maximum(1, Config::page_size)) : source;
        cp_async_zfill<piece_bytes>(target + at, from, exists);
      }
    }
  }

  // Converts a group of a tile, which came first of those in stages. Takes the stages of the tile with its first group, and hands
  // them over with its last one.
  JIT_DEVICE void convert(int group) {
    cp_async_wait_group<stored_stages - 1>();  // mutate: LatentsReadBeforeTheyCame
    __syncwarp();                              // mutate: LatentsOfOtherLanesReadEarly
#pragma unroll
    for (int panel = 0; panel < Traits::k_panels; ++panel)
      fill<typename Traits::KPanel>(stage_of(panels_.k, group, 1), group, Traits::first_key_column);
#pragma unroll 1
    for (int part = 0; part < Traits::v_parts; ++part)
      fill<typename Traits::VPart>(stage_of(panels_.v, group, Traits::v_parts - part), group,
                                   Traits::first_column(part));
    if (group + 1 < groups) return;
    fence_proxy_async_shared();  // mutate: LatentsWithoutProxyFence
#pragma unroll
    for (int panel = 0; panel < Traits::k_panels; ++panel) panels_.k.producer_commit_before(1);
#pragma unroll 1
    for (int part = Traits::v_parts; part > 0; --part) panels_.v.producer_commit_before(part);
  }

  // Where a stage of the tile lies, so many before the next tile's.
  template <class Pipeline>
  JIT_DEVICE unsigned stage_of(Pipeline& pipeline, int group, int back) {
    if (group > 0) return pipeline.tile_before(back);
    pipeline.producer_acquire();  // mutate: LatentsOverThoseThatAreMultiplied
    const unsigned tile = pipeline.tile();
    pipeline.advance();
    return tile;
  }

  // Writes a group's columns from `first` on to a stage. As many lanes have a row as a panel of it has chunks.
  template <class Tile>
  JIT_DEVICE void fill(unsigned tile, int group, int first) const {
    constexpr int lanes = Tile::row_bytes / chunk_bytes, rows_at_once = warp_size / lanes;
    static_assert(Latent::group % latent_piece == 0, "a piece has one scale");
    const int chunk = lane_id() % lanes;
#pragma unroll 1
    for (int panel = 0; panel < Tile::panels; ++panel) {
      const int column = first + panel * Tile::columns + chunk * latent_piece;
#pragma unroll 1  // beside the loops around it there are registers for one piece
      for (int step = 0; step < group_rows / rows_at_once; ++step) {
        const int row = step * rows_at_once + lane_id() / lanes;
        unsigned wide[4];
        read(stage_place() + row * row_stride, column, wide);
        store_shared(
            Tile::chunk_address(tile + panel * Tile::panel_bytes, tile_row(group * group_rows + row), chunk),
            wide);
      }
    }
  }

  // Eight numbers of the row at a shared address. Columns of a panel are of one kind.
  static JIT_DEVICE void read(unsigned row, int column, unsigned (&wide)[4]) {
    if (column < Latent::columns) {
      int words[2];
      load_shared(words, row + column);
      halves_of_latents({static_cast<unsigned>(words[0]), static_cast<unsigned>(words[1])}, wide);
      scale_latents<Element>(scale_of(row, column / Latent::group), wide);
    } else {
      load_shared(wide, row + Latent::rotated_begin + (column - Latent::columns) * 2);
      convert_rotated<Element>(wide);
    }
  }

  // The scale of a group of columns. Those of a page's end lie behind their row.
  static JIT_DEVICE float scale_of(unsigned row, int group) {
    constexpr int scales = Latent::page_end_bytes == 0 ? Latent::scales_begin : Latent::row_bytes;
    const int word = load_shared(row + scales + group * Latent::scale_bytes / 4 * 4);
    if constexpr (Latent::scale_bytes == 4) return __int_as_float(word);
    return power_of_two(static_cast<unsigned>(word) >> group % 4 * 8 & 255);
  }

  PanelPipelines<Traits> panels_;
  const unsigned stages_;     // shared address
  int slot_ = 0;              // where the next group goes
  bool has_earlier_ = false;  // whether all stages have groups that have not been converted
};

}  // namespace jit
