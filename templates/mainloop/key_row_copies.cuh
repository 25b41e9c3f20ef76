// Copies rows of keys by cp.async into tiles that wgmma reads. Where pages have few rows, or rows are chosen one by
// one, this is faster than TMA boxes.
#pragma once

#include "base/element.cuh"
#include "base/params.cuh"
#include "base/prelude.cuh"
#include "mainloop/pipelines.cuh"
#include "mainloop/row_plans.cuh"
#include "mainloop/row_quads.cuh"
#include "pipeline/pipeline.cuh"
#include "ptx/cp_async.cuh"

namespace jit {

/// Copies a warp's quads of tiles of keys that are values, too. They go to the pipelines of panels
/// (mainloop/panel_producer.cuh): a stage is full when the copies of all lanes have arrived, for which no lane waits here. Who
/// reads them fences.
template <class Traits>
class KeyRowCopies {
  using Config = typename Traits::Config;
  using Element = typename Config::Element;
  using Plans = RowPlans<Traits>;
  static constexpr int per_chunk = ElementTraits<Element>::per_chunk;
  static constexpr int warps = row_copy_warps;
  static constexpr int quads = Config::tile_kv / quad_rows,  // of a tile
      most_quads = (quads + warps - 1) / warps;
  // As many lanes have a row as a panel of it has chunks.
  static constexpr int chunks = Traits::VPart::row_bytes / chunk_bytes;
  static_assert(chunks * quad_rows == warp_size && Traits::KPanel::row_bytes == Traits::VPart::row_bytes,
                "a warp copies a panel of a quad at once");

 public:
  /// By warp `warp` of those that copy.
  JIT_DEVICE KeyRowCopies(const AttentionParams& params, unsigned smem, int warp)
      : params_(params), panels_(smem), own_{warp} {}

  /// Starts the copies of a tile, each once there is room for it; rows that there are not become zeros.
  JIT_DEVICE void copy_tile(const RowPlan& plan, Plans& plans) {
    const Sources sources(*this, plan, plans);
    plans.release();  // mutate: PlanReleasedBeforeItIsRead
#pragma unroll
    for (int part = 0; part < Traits::v_parts; ++part) {
      start<typename Traits::VPart>(panels_.v, sources, Traits::first_column(part));
      if (Traits::k_panels > 0 && part + 1 == Traits::parts_before_alone)
        start<typename Traits::KPanel>(panels_.k, sources, Traits::first_key_column);
    }
    own_.advance(quads);
  }

  /// Waits for all behind the last tile: no warp ends before its copies.
  JIT_DEVICE void finish() const {
    cp_async_commit_group();
    cp_async_wait_group<0>();
  }

 private:
  static JIT_DEVICE int lane_row() { return lane_id() / chunks; }
  static JIT_DEVICE int lane_chunk() { return lane_id() % chunks; }
  JIT_DEVICE int quad(int i) const { return own_.first + i * warps; }
  JIT_DEVICE bool has_quad(int i) const { return (i + 1) * warps <= quads || quad(i) < quads; }

  // The rows of which the lane copies a chunk of each panel, from this chunk on.
  struct Sources {
    const Element* rows[most_quads];
    bool exist[most_quads];

    JIT_DEVICE Sources(const KeyRowCopies& copies, const RowPlan& plan, const Plans& plans) {
#pragma unroll
      for (int i = 0; i < most_quads; ++i) {
        const int number = copies.has_quad(i) ? plans.number(copies.quad(i) * quad_rows + lane_row()) : -1;
        const Element* row = row_start<Config>(copies.params_, plan, number);
        exist[i] = row != nullptr;
        if (!exist[i]) row = static_cast<const Element*>(copies.params_.k);  // of which nothing is read
        rows[i] = row + lane_chunk() * per_chunk;
      }
    }
  };

  // Starts the copies of the columns from `first` on that a stage has.
  template <class Tile, class Pipeline>
  JIT_DEVICE void start(Pipeline& pipeline, const Sources& sources, int first) const {
    pipeline.producer_acquire();  // mutate: RowsOverThoseThatAreMultiplied
    const int row = own_.first * quad_rows + lane_row();
    // Quads of a warp are one and then the other half of a swizzle's rows, since warps are an odd number.
    const unsigned even = Tile::chunk_address(pipeline.tile(), row, lane_chunk()),
                   odd = Tile::chunk_address(pipeline.tile(), row + warps * quad_rows, lane_chunk()) -
                         warps * quad_rows * Tile::row_bytes;
    static_assert(warps % 2 == 1 && 2 * quad_rows * chunk_bytes == Tile::row_bytes);
#pragma unroll
    for (int i = 0; i < most_quads; ++i) {
      const unsigned own = (i % 2 == 0 ? even : odd) + i * warps * quad_rows * Tile::row_bytes;
#pragma unroll
      for (int panel = 0; panel < Tile::panels; ++panel) {
        const int column = first + panel * Tile::columns;
        const bool is_column = column + lane_chunk() * per_chunk < Config::head_dim;
        if (has_quad(i))
          cp_async_zfill<chunk_bytes>(own + panel * Tile::panel_bytes, sources.rows[i] + column,
                                      sources.exist[i] && is_column);
      }
    }
    cp_async_mbarrier_arrive(pipeline.full());  // mutate: StageFullBeforeItsRowsCame
    pipeline.advance();
  }

  const AttentionParams& params_;
  PanelPipelines<Traits> panels_;
  OwnQuads own_;
};

}  // namespace jit
