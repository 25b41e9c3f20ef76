// Rows of 8-bit latents (problem/latent_rows.cuh) to tiles of 16-bit numbers that wgmma reads, converted on the way.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "base/row_pieces.cuh"
#include "mainloop/key_row_places.cuh"
#include "mainloop/pipelines.cuh"
#include "problem/latent_rows.cuh"
#include "ptx/bulk_copy.cuh"
#include "tiles/shared_words.cuh"

namespace jit {

/// In place of KeyRowCopies, where Config::StoredLatent is the format of rows. cp.async cannot convert: a lane loads the
/// pieces of a panel that it has of all rows of its warp, so that these loads wait for no other, and stores them.
template <class Traits>
class LatentRowCopies : public KeyRowPlaces<Traits> {
  using Places = KeyRowPlaces<Traits>;
  using typename Places::Config;
  using Places::rows, Places::rows_per_lane, Places::row_at, Places::tile_row;
  using Latent = typename Config::StoredLatent;
  using Element = typename Config::Element;

 public:
  using typename Places::Place;

  JIT_DEVICE LatentRowCopies(const AttentionParams& params, unsigned smem, int warp)
      : Places(params, warp), panels_(smem) {}

  /// Converts a tile, each stage once there is room for it; rows that there are not become zeros.
  JIT_DEVICE void copy_tile(const Place& place, bool /*is_last*/) {
    static_assert(rows_per_lane == 1 && rows == warp_size, "each lane knows one row");
    const unsigned char* const own_row = row_at(place, 0);
#pragma unroll
    for (int panel = 0; panel < Traits::k_panels; ++panel)
      fill<typename Traits::KPanel>(panels_.k, own_row, place.seq[0], Traits::first_key_column);
#pragma unroll 1
    for (int part = 0; part < Traits::v_parts; ++part)
      fill<typename Traits::VPart>(panels_.v, own_row, place.seq[0], Traits::first_column(part));
  }

 private:
  // Fills a stage with the columns from `first` on.
  template <class Tile, class Pipeline>
  JIT_DEVICE void fill(Pipeline& pipeline, const unsigned char* own_row, int own_seq, int first) {
    pipeline.producer_acquire();  // mutate: LatentsOverThoseThatAreMultiplied
#pragma unroll 1
    for (int panel = 0; panel < Tile::panels; ++panel) {
      const int column = first + panel * Tile::columns;
      const unsigned tile = pipeline.tile() + panel * Tile::panel_bytes;
      if (column < Latent::columns) {
        convert<Tile>(tile, own_row, own_seq, column);
      } else {
        copy_rotated<Tile>(tile, own_row, column - Latent::columns);
      }
    }
    fence_proxy_async_shared();  // mutate: LatentsWithoutProxyFence
    pipeline.producer_commit();
    pipeline.advance();
  }

  // As many lanes have a row as a panel of it has chunks.
  template <class Tile>
  static constexpr int lanes = Tile::row_bytes / chunk_bytes;
  template <class Tile>
  static constexpr int rows_at_once = warp_size / lanes<Tile>;
  static constexpr int ahead = 2;  // rows of a lane whose loads are on their way at once

  template <class Tile>
  static JIT_DEVICE int chunk() {
    return lane_id() % lanes<Tile>;
  }
  // A lane's row of the warp's, in a step.
  template <class Tile>
  static JIT_DEVICE int row_of(int step) {
    return step * rows_at_once<Tile> + lane_id() / lanes<Tile>;
  }
  static JIT_DEVICE const unsigned char* start_of(const unsigned char* own_row, int row) {
    return reinterpret_cast<const unsigned char*>(
        __shfl_sync(full_warp, reinterpret_cast<unsigned long long>(own_row), row));
  }
  template <class Tile>
  JIT_DEVICE void store(unsigned tile, int row, const unsigned (&wide)[4]) const {
    store_shared(Tile::chunk_address(tile, tile_row(row), chunk<Tile>()), wide);
  }

  // Columns of e4m3 from `column` on, all of one panel.
  template <class Tile>
  JIT_DEVICE void convert(unsigned tile, const unsigned char* own_row, int own_seq, int column) const {
    static_assert(Latent::group % latent_piece == 0, "a piece has one scale");
    const int first = column + chunk<Tile>() * latent_piece;
#pragma unroll 1
    for (int step = 0; step < rows / rows_at_once<Tile>; step += ahead) {
      unsigned words[ahead][2] = {};
      float scales[ahead] = {};
#pragma unroll
      for (int i = 0; i < ahead; ++i) {
        const int row = row_of<Tile>(step + i);
        const unsigned char* const start = start_of(own_row, row);
        const int seq = Latent::page_end_bytes == 0 ? 0 : __shfl_sync(full_warp, own_seq, row);
        if (start == nullptr) continue;  // mutate: LatentsOfKeysThatAreNone
        load_words<latent_piece, latent_piece>(start + first, words[i]);
        scales[i] = group_scale<Latent>(
            scales_of_row<Latent>(start, seq, maximum(1, Config::page_size)), first / Latent::group);
      }
#pragma unroll
      for (int i = 0; i < ahead; ++i) {
        unsigned wide[4];
        halves_of_latents(words[i], wide);
        scale_latents<Element>(scales[i], wide);
        store<Tile>(tile, row_of<Tile>(step + i), wide);
      }
    }
  }

  // Columns of bf16 from the `column`-th of them on.
  template <class Tile>
  JIT_DEVICE void copy_rotated(unsigned tile, const unsigned char* own_row, int column) const {
    const int from = Latent::rotated_begin + 2 * (column + chunk<Tile>() * latent_piece);
#pragma unroll 1
    for (int step = 0; step < rows / rows_at_once<Tile>; step += ahead) {
      unsigned wide[ahead][4] = {};
#pragma unroll
      for (int i = 0; i < ahead; ++i) {
        const unsigned char* const start = start_of(own_row, row_of<Tile>(step + i));
        if (start != nullptr) load_words<2 * latent_piece, latent_piece>(start + from, wide[i]);
      }
#pragma unroll
      for (int i = 0; i < ahead; ++i) {
        convert_rotated<Element>(wide[i]);
        store<Tile>(tile, row_of<Tile>(step + i), wide[i]);
      }
    }
  }

  PanelPipelines<Traits> panels_;
};

}  // namespace jit
