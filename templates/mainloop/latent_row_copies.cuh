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

/// In place of KeyRowCopies, where Config::StoredLatent is the format of rows. cp.async cannot convert: batches of
/// rows come as they are to stages of the warp's own, and go from there to the tile. So many bytes are on their way as cover
/// the latency of memory, and few registers hold them. A batch is converted when its stage is needed again: those of a tile
/// are handed over while the next tile's are on their way, or at the end of the split.
template <class Traits>
class LatentRowCopies : public KeyRowPlaces<Traits> {
  using Places = KeyRowPlaces<Traits>;
  using Places::rows, Places::rows_per_lane, Places::params_, Places::row_at, Places::tile_row;
  using typename Places::Config;
  using Latent = typename Config::StoredLatent;
  using Element = typename Config::Element;
  static constexpr int stages = Traits::layout.stored_stages;
  static constexpr int batches = rows / stored_batch_rows;  // of a tile
  static constexpr int row_stride = stored_row_stride(Latent::row_bytes + Latent::page_end_bytes),
                       batch_bytes = stored_batch_rows * row_stride;
  static_assert(rows % stored_batch_rows == 0 && Places::group_rows % stored_batch_rows == 0,
                "rows of a batch lie side by side");
  // Lanes of a row where a batch is copied, and bytes that they copy at once.
  static constexpr int row_lanes = warp_size / stored_batch_rows, row_bytes_at_once = row_lanes * chunk_bytes;
  // Lanes of a row of a panel where it is converted, each for so many columns.
  static constexpr int lane_columns = chunk_bytes, panel_lanes = Traits::VPart::columns / lane_columns,
                       panels_at_once = warp_size / stored_batch_rows / panel_lanes;

 public:
  using typename Places::Place;

  JIT_DEVICE LatentRowCopies(const AttentionParams& params, unsigned smem, int warp)
      : Places(params, warp),
        panels_(smem),
        stages_(smem + Traits::layout.stored + warp * stages * batch_bytes) {}

  /// Starts the copies of a tile, and converts what came before; these, too, where it is the split's last.
  JIT_DEVICE void copy_tile(const Place& place, bool is_last) {
    static_assert(rows_per_lane == 1, "each lane knows one row");
    const unsigned char* const own_row = row_at(place, 0);
    const int steps = is_last ? batches + stages : batches;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
      // The batch that goes next takes the stage of the one that came first.
      if (taken_ == stages) {
        convert();
      } else {
        ++taken_;
      }
      if (step < batches) copy(own_row, place, step * stored_batch_rows);
      cp_async_commit_group();  // at the end of none, so that as many are behind each
      slot_ = slot_ + 1 == stages ? 0 : slot_ + 1;
    }
    if (is_last) taken_ = 0;
  }

  /// All have been waited for.
  JIT_DEVICE void finish() const {}

 private:
  JIT_DEVICE unsigned stage_place() const { return stages_ + slot_ * batch_bytes; }

  // Starts the copies of a batch of the warp's rows, from `first` on. A row that there is not becomes zeros, whose scales are
  // numbers.
  JIT_DEVICE void copy(const unsigned char* own_row, const Place& place, int first) {
    __syncwarp();  // mutate: StoredRowsOverThoseThatAreRead
    const int row = first + lane_id() / row_lanes, lane = lane_id() % row_lanes;
    const auto* source = reinterpret_cast<const unsigned char*>(
        __shfl_sync(full_warp, reinterpret_cast<unsigned long long>(own_row), row));
    const bool exists = source != nullptr;
    if (!exists) source = static_cast<const unsigned char*>(params_.k);  // of which nothing is read
    const unsigned target = stage_place() + lane_id() / row_lanes * row_stride;
    if constexpr (Latent::page_end_bytes > 0) {
      const int seq = __shfl_sync(full_warp, place.seq[0], row);
      static_assert(Latent::page_end_bytes == 8, "a lane copies the scales of a row");
      if (lane == 0)
        cp_async_zfill<8>(target + Latent::row_bytes,
                          exists ? scales_of_row<Latent>(source, seq, maximum(1, Config::page_size)) : source,
                          exists);
    }
    const bool is_aligned = reinterpret_cast<unsigned long long>(source) % chunk_bytes == 0;
#pragma unroll
    for (int at = 0; at < Latent::row_bytes; at += row_bytes_at_once) {
      const int own = at + lane * chunk_bytes;
      if (own >= Latent::row_bytes) break;
      if (is_aligned) {
        cp_async_zfill<chunk_bytes>(target + own, source + own, exists);
      } else {  // rows begin at multiples of 8
        cp_async_zfill<8>(target + own, source + own, exists);
        cp_async_zfill<8>(target + own + 8, source + own + 8, exists);
      }
    }
  }

  // Converts the batch that came first. Takes the stages of its tile with the first batch of that, and hands
  // them over with the last one.
  JIT_DEVICE void convert() {
    cp_async_wait_group<stages - 1>();  // mutate: LatentsReadBeforeTheyCame
    __syncwarp();                       // mutate: LatentsOfOtherLanesReadEarly
#pragma unroll
    for (int panel = 0; panel < Traits::k_panels; ++panel)
      fill<typename Traits::KPanel>(stage_of(panels_.k, 1), Traits::first_key_column);
#pragma unroll
    for (int part = 0; part < Traits::v_parts; ++part)
      fill<typename Traits::VPart>(stage_of(panels_.v, Traits::v_parts - part), Traits::first_column(part));
    batch_ = batch_ + 1 == batches ? 0 : batch_ + 1;
    if (batch_ > 0) return;
    fence_proxy_async_shared();  // mutate: LatentsWithoutProxyFence
#pragma unroll
    for (int panel = 0; panel < Traits::k_panels; ++panel) panels_.k.producer_commit_before(1);
#pragma unroll 1
    for (int part = Traits::v_parts; part > 0; --part) panels_.v.producer_commit_before(part);
  }

  // Where a stage of the tile lies, so many before the next tile's.
  template <class Pipeline>
  JIT_DEVICE unsigned stage_of(Pipeline& pipeline, int back) {
    if (batch_ > 0) return pipeline.tile_before(back);
    pipeline.producer_acquire();  // mutate: LatentsOverThoseThatAreMultiplied
    const unsigned tile = pipeline.tile();
    pipeline.advance();
    return tile;
  }

  // Writes a batch's columns from `first` on to a stage.
  template <class Tile>
  JIT_DEVICE void fill(unsigned tile, int first) const {
    static_assert(Latent::columns % Tile::columns == 0, "columns of a panel are of one kind");
    static_assert(Tile::row_bytes == Places::group_rows * chunk_bytes, "a row's swizzle is its number");
    const unsigned rows_begin = tile + tile_row(batch_ * stored_batch_rows) * Tile::row_bytes;
    const int first_row = batch_ * stored_batch_rows % Places::group_rows;
#pragma unroll
    for (int panel = 0; panel < Tile::panels; panel += panels_at_once)
      fill_scaled<Tile>(rows_begin, first_row, panel, first);
#pragma unroll
    for (int panel = 0; panel < Tile::panels; ++panel) {
      if (first + panel * Tile::columns >= Latent::columns)
        fill_rotated<Tile>(rows_begin, first_row, panel, first);
    }
  }

  // Writes panels of columns of e4m3. Lanes have 16 columns each, one behind the other of two rows of a panel: so that
  // neither what they read nor what they write meets in a bank.
  template <class Tile>
  JIT_DEVICE void fill_scaled(unsigned rows_begin, int first_row, int first_panel, int first) const {
    const int panel = first_panel + lane_id() / (stored_batch_rows * panel_lanes),
              row = lane_id() / panel_lanes % stored_batch_rows,
              own = lane_id() % panel_lanes, column = first + panel * Tile::columns + own * lane_columns;
    if (panel >= Tile::panels || column >= Latent::columns) return;
    const unsigned stored = stage_place() + row * row_stride;
    unsigned words[4];
    load_shared(words, stored + column);
    const float scale = scale_of(stored, column / Latent::group);
    static_assert(Latent::group % lane_columns == 0, "columns of a lane have one scale");
    const unsigned target = rows_begin + row * Tile::row_bytes + panel * Tile::panel_bytes;
#pragma unroll
    for (int i = 0; i < lane_columns / latent_piece; ++i) {
      unsigned wide[4];
      halves_of_latents({words[2 * i], words[2 * i + 1]}, wide);
      scale_latents<Element>(scale, wide);
      store_shared(target + ((own * 2 + i) ^ (first_row + row)) * chunk_bytes, wide);
    }
  }

  // Writes a panel of columns of bf16.
  template <class Tile>
  JIT_DEVICE void fill_rotated(unsigned rows_begin, int first_row, int panel, int first) const {
    const int row = lane_id() / row_lanes, chunk = lane_id() % row_lanes,
              column = first + panel * Tile::columns - Latent::columns;
    static_assert(row_lanes * latent_piece == Tile::columns, "lanes of a row have a panel");
    unsigned wide[4];
    load_shared(wide, stage_place() + row * row_stride + Latent::rotated_begin + column * 2 + chunk * chunk_bytes);
    convert_rotated<Element>(wide);
    store_shared(rows_begin + row * Tile::row_bytes + panel * Tile::panel_bytes +
                     (chunk ^ (first_row + row)) * chunk_bytes,
                 wide);
  }

  // The scale of a group of columns. Those of a page's end lie behind their row.
  static JIT_DEVICE float scale_of(unsigned row, int group) {
    constexpr int scales = Latent::page_end_bytes == 0 ? Latent::scales_begin : Latent::row_bytes;
    const int word = load_shared(row + scales + group * Latent::scale_bytes / 4 * 4);
    if constexpr (Latent::scale_bytes == 4) return __int_as_float(word);
    return power_of_two(static_cast<unsigned>(word) >> group % 4 * 8 & 255);
  }

  PanelPipelines<Traits> panels_;
  const unsigned stages_;  // shared address
  int slot_ = 0;           // where the next batch goes
  int taken_ = 0;          // stages with batches that have not been converted
  int batch_ = 0;          // the one of its tile that is converted next
};

}  // namespace jit
