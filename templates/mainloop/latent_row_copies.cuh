// Rows of 8-bit latents (problem/latent_rows.cuh) to tiles of 16-bit numbers that wgmma reads, converted on the way.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "mainloop/exchanged_rows.cuh"
#include "mainloop/pipelines.cuh"
#include "mainloop/row_plans.cuh"
#include "mainloop/row_quads.cuh"
#include "mainloop/stored_latents.cuh"
#include "problem/latent_rows.cuh"
#include "ptx/bulk_copy.cuh"
#include "ptx/cp_async.cuh"
#include "tiles/shared_words.cuh"

namespace jit {

/// In place of KeyRowCopies, where Config::StoredLatent is the format of rows. cp.async cannot convert: quads of
/// rows come as they are to stages of the warp's own, and go from there to the tile. So many bytes are on their way as cover
/// the latency of memory, and few registers hold them. A quad is converted when its stage is needed again: those of a tile
/// are handed over while the next tile's are on their way, or at the end of the split. A block of a pair converts half of the
/// rows, and stores these in both blocks.
template <class Traits>
class LatentRowCopies {
  using Config = typename Traits::Config;
  using Latent = typename Config::StoredLatent;
  using Element = typename Config::Element;
  using Plans = RowPlans<Traits>;
  using V = typename Traits::VPart;
  static constexpr int stages = Traits::layout.stored_stages;
  static constexpr int warps = row_copy_warps;
  static constexpr int quads = Traits::copied_rows / quad_rows;  // of a tile
  static constexpr int row_stride = stored_row_stride(Latent::row_bytes + Latent::page_end_bytes),
                       quad_bytes = quad_rows * row_stride;
  // Lanes of a row where a quad is copied, and bytes that they copy at once.
  static constexpr int row_lanes = warp_size / quad_rows, row_bytes_at_once = row_lanes * chunk_bytes;
  // Lanes of a row of a panel where it is converted, each for so many columns.
  static constexpr int lane_columns = chunk_bytes, panel_lanes = V::columns / lane_columns;
  static_assert(V::panels * panel_lanes == row_lanes, "a warp has a part of the values of a quad");
  static_assert(Traits::k_panels ==
                    (Latent::columns == Config::head_dim_v && Config::head_dim > Latent::columns),
                "columns behind the values are rotated");

 public:
  /// By warp `warp` of those that copy.
  JIT_DEVICE LatentRowCopies(const AttentionParams& params, unsigned smem, int warp)
      : params_(params),
        panels_(smem),
        stages_(smem + Traits::layout.stored + warp * stages * quad_bytes),
        are_aligned_(are_aligned(params)),
        copied_{warp},
        converted_{warp},
        quad_(warp),
        expects_(warp == 0) {}

  /// Starts the copies of a tile, and converts what came before; these, too, where it is the split's last.
  JIT_DEVICE void copy_tile(const RowPlan& plan, Plans& plans) {
    int left = plan.is_last ? stages : 0;
#pragma unroll 1
    for (int quad = copied_.first; quad < quads || left > 0; quad += warps) {
      // The quad that goes next takes the stage of the one that came first.
      if (taken_ == stages) {
        convert();
      } else {
        ++taken_;
      }
      if (quad < quads) {
        copy(plan, plans.number(Traits::first_copied_row() + quad * quad_rows + lane_id() / row_lanes));
      } else {
        --left;
      }
      cp_async_commit_group();  // at the end of none, so that as many are behind each
      slot_ = slot_ + 1 == stages ? 0 : slot_ + 1;
    }
    plans.release();
    copied_.advance(quads);
    if (plan.is_last) taken_ = 0;
  }

  /// All have been waited for.
  JIT_DEVICE void finish() const {}

 private:
  // Columns of e4m3 of a lane, as they are stored, of a part of the values.
  struct Piece {
    unsigned words[4];
    float scale;
  };

  // Shared addresses of a stage that is written, and of its barrier.
  struct Stage {
    unsigned tile, full;
  };

  JIT_DEVICE unsigned stage_place() const { return stages_ + slot_ * quad_bytes; }

  // Starts the copies of a quad, of whose rows this is the number of the lane's. A row that there is not becomes zeros, whose
  // scales are numbers.
  JIT_DEVICE void copy(const RowPlan& plan, int number) {
    __syncwarp();  // mutate: StoredRowsOverThoseThatAreRead
    const int lane = lane_id() % row_lanes;
    const unsigned char* source = row_start<Config>(params_, plan, number);
    const bool exists = source != nullptr;
    if (!exists) source = static_cast<const unsigned char*>(params_.k);  // of which nothing is read
    const unsigned target = stage_place() + lane_id() / row_lanes * row_stride;
    if constexpr (Latent::page_end_bytes > 0) {
      static_assert(Latent::page_end_bytes == 8, "a lane copies the scales of a row");
      constexpr int page_size = maximum(1, Config::page_size);
      if (lane == 0)
        cp_async_zfill<8>(target + Latent::row_bytes,
                          exists ? scales_of_row<Latent>(source, number % page_size, page_size) : source,
                          exists);
    }
    if (are_aligned_) {
      copy_row<chunk_bytes>(target, source, lane, exists);
    } else {  // rows begin at multiples of 8
      copy_row<chunk_bytes / 2>(target, source, lane, exists);
    }
  }
  template <int bytes>
  static JIT_DEVICE void copy_row(unsigned target, const unsigned char* source, int lane, bool exists) {
#pragma unroll
    for (int at = 0; at < Latent::row_bytes; at += row_bytes_at_once) {
      const int own = at + lane * chunk_bytes;
      if (own >= Latent::row_bytes) break;
#pragma unroll
      for (int piece = 0; piece < chunk_bytes; piece += bytes)
        cp_async_zfill<bytes>(target + own + piece, source + own + piece, exists);
    }
  }
  // Whether all rows begin at multiples of 16 bytes.
  static JIT_DEVICE bool are_aligned(const AttentionParams& params) {
    const TensorStrides& strides = params.k_strides;
    const long long all = strides.batch | strides.seq | strides.head |
                          static_cast<long long>(reinterpret_cast<unsigned long long>(params.k));
    return all % chunk_bytes == 0;
  }

  // Converts the quad that came first. Takes the stages of its tile with the warp's first one of that, and hands
  // them over with its last one. Shared memory is busy with operands of products: what is read is asked for at once, so
  // that it is waited for once.
  JIT_DEVICE void convert() {
    cp_async_wait_group<stages - 1>();  // mutate: LatentsReadBeforeTheyCame
    __syncwarp();                       // mutate: LatentsOfOtherLanesReadEarly
    const bool begins = quad_ == converted_.first;
    const unsigned rows_at = (Traits::first_copied_row() + quad_ * quad_rows) * V::row_bytes;
    Piece pieces[Traits::v_parts];
#pragma unroll
    for (int part = 0; part < Traits::v_parts; ++part) pieces[part] = scaled_piece(part);
    if constexpr (has_rotated) {
      unsigned rotated[4];
      load_rotated(rotated);
      if constexpr (Traits::k_panels > 0) {
        if (begins) rotated_ = take(panels_.k);
        write_rotated(rotated_.tile + rows_at, rotated_.full, rotated);
      }
#pragma unroll
      for (int part = 0; part < Traits::v_parts; ++part) {
        write_part(part, rows_at, begins, pieces[part]);
        constexpr int of_part = V::panels * V::columns;
        const int column = Latent::columns - Traits::first_column(part);
        if (Traits::k_panels == 0 && column >= 0 && column < of_part)
          write_rotated(values_.tile + part * V::bytes + rows_at + column / V::columns * V::panel_bytes,
                        values_.full + part * 8, rotated);
      }
    } else {
#pragma unroll
      for (int part = 0; part < Traits::v_parts; ++part) write_part(part, rows_at, begins, pieces[part]);
    }
    quad_ += warps;
    if (quad_ < quads) return;
    converted_.advance(quads);
    quad_ = converted_.first;
    fence_proxy_async_shared();  // mutate: LatentsWithoutProxyFence
#pragma unroll
    for (int panel = 0; panel < Traits::k_panels; ++panel) commit<typename Traits::KPanel>(panels_.k, 1);
#pragma unroll 1
    for (int part = Traits::v_parts; part > 0; --part) commit<V>(panels_.v, part);
  }
  // Writes the quad's columns of a part. Stages of a tile lie side by side.
  JIT_DEVICE void write_part(int part, unsigned rows_at, bool begins, const Piece& piece) {
    static_assert(Traits::stages_v % Traits::v_parts == 0, "no tile is torn");
    if (begins) {
      const Stage stage = take(panels_.v);
      if (part == 0) values_ = stage;
    }
    write_scaled(values_.tile + part * V::bytes + rows_at, values_.full + part * 8, part, piece);
  }
  // Waits until the next stage may be written, and returns where it lies.
  template <class Pipeline>
  static JIT_DEVICE Stage take(Pipeline& pipeline) {
    pipeline.producer_acquire();  // mutate: LatentsOverThoseThatAreMultiplied
    const Stage stage{pipeline.tile(), pipeline.full()};
    pipeline.advance();
    return stage;
  }

  // Hands over the stage so many before the next tile's, which in a pair waits for the other block's rows, too.
  template <class Tile, class Pipeline>
  JIT_DEVICE void commit(const Pipeline& pipeline, int back) const {
    if constexpr (Traits::is_pair) {
      // mutate: ScoresDoNotWaitForThePeersLatents
      if (expects_ && lane_id() == 0) mbarrier_expect_tx(pipeline.full_before(back), Tile::bytes / 2);
    }
    pipeline.producer_commit_before(back);
  }

  // Lanes have 16 columns each, one behind the other of two rows of a panel: so that neither what they read nor what they
  // write meets in a bank.
  static JIT_DEVICE int own_row() { return lane_id() / panel_lanes % quad_rows; }
  static JIT_DEVICE int own_panel() { return lane_id() / (quad_rows * panel_lanes); }
  static JIT_DEVICE int own_column(int part) {
    return Traits::first_column(part) + own_panel() * V::columns + lane_id() % panel_lanes * lane_columns;
  }
  static JIT_DEVICE bool is_scaled(int part) { return own_column(part) < Latent::columns; }

  JIT_DEVICE Piece scaled_piece(int part) const {
    Piece piece{};
    if (!is_scaled(part)) return piece;
    const unsigned stored = stage_place() + own_row() * row_stride;
    load_shared(piece.words, stored + own_column(part));
    piece.scale = scale_of(stored, own_column(part) / Latent::group);
    static_assert(Latent::group % lane_columns == 0, "columns of a lane have one scale");
    return piece;
  }
  JIT_DEVICE void write_scaled(unsigned rows_begin, unsigned full, int part, const Piece& piece) const {
    if (!is_scaled(part)) return;
    const unsigned target = rows_begin + own_row() * V::row_bytes + own_panel() * V::panel_bytes;
    const int first_chunk = lane_id() % panel_lanes * (lane_columns / latent_piece);
#pragma unroll
    for (int i = 0; i < lane_columns / latent_piece; ++i) {
      unsigned wide[4];
      halves_of_latents({piece.words[2 * i], piece.words[2 * i + 1]}, wide);
      scale_latents<Element>(piece.scale, wide);
      write(target + ((first_chunk + i) ^ swizzle(own_row())) * chunk_bytes, wide, full);
    }
  }

  // Columns of bf16, a chunk for each lane: reads them, and writes their panel.
  static constexpr bool has_rotated = Latent::columns < Config::head_dim;
  JIT_DEVICE void load_rotated(unsigned (&stored)[4]) const {
    static_assert(row_lanes * latent_piece == V::columns, "lanes of a row have a panel");
    const int row = lane_id() / row_lanes, chunk = lane_id() % row_lanes;
    load_shared(stored, stage_place() + row * row_stride + Latent::rotated_begin + chunk * chunk_bytes);
  }
  JIT_DEVICE void write_rotated(unsigned rows_begin, unsigned full, unsigned (&stored)[4]) const {
    const int row = lane_id() / row_lanes, chunk = lane_id() % row_lanes;
    convert_rotated<Element>(stored);
    write(rows_begin + row * V::row_bytes + (chunk ^ swizzle(row)) * chunk_bytes, stored, full);
  }
  // Writes a chunk, and to the same place of the other block of a pair, at whose barrier it counts.
  JIT_DEVICE void write(unsigned target, const unsigned (&words)[4], unsigned full) const {
    store_shared(target, words);
    if constexpr (Traits::is_pair) store_to_peer(target, words, full);
  }

  // The number that chunks of a row of the quad are exchanged by.
  JIT_DEVICE int swizzle(int row) const {
    static_assert(V::row_bytes == 2 * quad_rows * chunk_bytes, "two quads have all swizzles");
    return quad_ % 2 * quad_rows + row;
  }

  // The scale of a group of columns. Those of a page's end lie behind their row.
  static JIT_DEVICE float scale_of(unsigned row, int group) {
    constexpr int scales = Latent::page_end_bytes == 0 ? Latent::scales_begin : Latent::row_bytes;
    const int word = load_shared(row + scales + group * Latent::scale_bytes / 4 * 4);
    if constexpr (Latent::scale_bytes == 4) return __int_as_float(word);
    return power_of_two(static_cast<unsigned>(word) >> group % 4 * 8 & 255);
  }

  const AttentionParams& params_;
  PanelPipelines<Traits> panels_;
  const unsigned stages_;  // shared address
  const bool are_aligned_;
  OwnQuads copied_, converted_;  // of the tiles that are copied and converted next
  int quad_;                     // that is converted next
  Stage values_{}, rotated_{};   // of the tile that is converted: its first part, and its keys alone
  const bool expects_;           // the other block's rows of each stage
  int slot_ = 0;                 // where the next quad goes
  int taken_ = 0;                // stages with quads that have not been converted
};

}  // namespace jit
