// The pipelines of the other side's tiles: panels, which the score warpgroup multiplies, and parts, which are multiplied with
// weights. A producer warp fills each pipeline.
#pragma once

#include "backward_wide/traits.cuh"
#include "base/prelude.cuh"
#include "pipeline/pipeline.cuh"
#include "ptx/bulk_copy.cuh"
#include "ptx/ldmatrix.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/warpgroup.cuh"
#include "ptx/wgmma.cuh"
#include "tiles/box_copy.cuh"
#include "tiles/shared_words.cuh"

namespace jit::backward_wide {

template <class Traits>
using PanelPipeline = Pipeline<Traits::Config::panels, Traits::panel_stage_bytes>;
template <class Traits>
using PartPipeline = Pipeline<Traits::Config::parts, Traits::part_stage_bytes>;

/// Loads the tile from column `first` on that a stage has. By a whole warp.
template <class Tile, class Stages, class Map, class Box>
JIT_DEVICE void load_stage(Stages& pipeline, const Map& map, const Box& box, int first) {
  pipeline.producer_acquire();  // mutate: StageOfAWideGradientIsOverwritten
  if (lane_id() == 0) {
    mbarrier_arrive_expect_tx(pipeline.full(), Tile::bytes);
    load_tile<Tile>(pipeline.tile(), map, pipeline.full(), box, first);
  }
  pipeline.advance();
}
/// Loads all panels of an operand of scores.
template <class Operand, class Stages, class Map, class Box>
JIT_DEVICE void load_panels(Stages& pipeline, const Map& map, const Box& box) {
#pragma unroll 1
  for (int panel = 0; panel < Operand::panels; ++panel)
    load_stage<typename Operand::Panel>(pipeline, map, box, panel * Operand::Panel::columns);
}
/// Loads what a block owns of an operand: panels that stay in registers pass first, those that stay in shared
/// memory lie at `rest` and count at the barrier `full`.
template <class Operand, class Stages, class Map, class Box>
JIT_DEVICE void load_own(Stages& pipeline, unsigned rest, unsigned full, const Map& map, const Box& box) {
  using Panel = typename Operand::Panel;
  if (lane_id() == 0) {
    mbarrier_expect_tx(full, (Operand::panels - Operand::register_panels) * Panel::bytes);
#pragma unroll 1
    for (int panel = Operand::register_panels; panel < Operand::panels; ++panel)
      load_tile<Panel>(rest + (panel - Operand::register_panels) * Panel::bytes, map, full, box,
                       panel * Panel::columns);
  }
  __syncwarp();
#pragma unroll 1
  for (int panel = 0; panel < Operand::register_panels; ++panel)
    load_stage<Panel>(pipeline, map, box, panel * Panel::columns);
}
/// Loads all parts of the other operand of a gradient.
template <class Traits, class Stages, class Map, class Box>
JIT_DEVICE void load_parts(Stages& pipeline, const Map& map, const Box& box) {
#pragma unroll 1
  for (int part = 0; part < Traits::parts; ++part)
    load_stage<typename Traits::Part>(pipeline, map, box, Traits::first_column(part));
}

/// The tile of an operand that a block owns, as threads of the score warpgroup know it.
template <class Operand>
struct OwnTile {
  typename Operand::Fragments fragments[larger(Operand::register_panels, 1)];
  unsigned rest;  ///< shared address of the panels that are not there
};

/// Panels as the score warpgroup takes them. Each is a group of products.
template <class Traits>
class PanelReader {
  static constexpr int in_flight = 2;  // groups

 public:
  JIT_DEVICE explicit PanelReader(unsigned smem) : pipeline_(smem, Traits::layout.panels) {}

  /// Takes the panels of the own tile that stay in registers; the others lie at `rest`.
  template <class Operand>
  JIT_DEVICE OwnTile<Operand> take_own(unsigned rest) {
    OwnTile<Operand> own;
    own.rest = rest;
    const int lane = lane_id(), row = threadIdx.x % warpgroup_size / warp_size * 16 + lane % 16;
#pragma unroll
    for (int panel = 0; panel < Operand::register_panels; ++panel) {
      pipeline_.consumer_wait();
#pragma unroll
      for (int step = 0; step < Operand::panel_steps; ++step)
        ldmatrix_x4(own.fragments[panel][step],
                    Operand::Panel::chunk_address(pipeline_.tile(), row, 2 * step + lane / 16));
      pipeline_.consumer_release();
      pipeline_.advance();
    }
    return own;
  }

  /// Starts the products of the own tile and the next one that comes by; `begins`: the sum has no value before. So many groups
  /// were started since the last `finish`.
  template <class Operand, bool begins, int before, class Product>
  JIT_DEVICE void multiply(Product& product, const OwnTile<Operand>& own) {
    using A = typename Operand::Own;
    using B = typename Operand::Panel;
    auto& d = product.registers[0];
    wgmma_hold(d);
#pragma unroll
    for (int panel = 0; panel < Operand::panels; ++panel) {
      pipeline_.consumer_wait();  // mutate: NoWaitForAPanelOfAGradient
      const unsigned b = lower_word(B::along_columns(uniform(pipeline_.tile()), 0, 0));
      wgmma_fence();
      if (panel < Operand::register_panels) {
        const auto& a = own.fragments[minimum(panel, larger(Operand::register_panels, 1) - 1)];
        if (begins && panel == 0) {
          Operand::template multiply_first_rs<B>(d, a, b);
        } else {
          Operand::template multiply_rs<B>(d, a, b);
        }
      } else {
        const unsigned a = lower_word(
            A::along_columns(own.rest + (panel - Operand::register_panels) * A::panel_bytes, 0, 0));
        if (begins && panel == 0) {
          Operand::template multiply_first<A, B>(d, a, b);
        } else if (panel == Operand::panels - 1) {
          Operand::template multiply_last<A, B>(d, a, b);
        } else {
          Operand::template multiply<A, B>(d, a, b);
        }
      }
      wgmma_commit_group();
      pipeline_.advance();
      if (before + panel >= in_flight) {
        wgmma_wait_group<in_flight>();
        pipeline_.consumer_release_before(in_flight + 1);  // mutate: PanelOfAGradientReleasedEarly
      }
    }
  }

  /// Waits for all products of so many groups.
  template <int groups>
  JIT_DEVICE void finish() {
    wgmma_wait_group<0>();  // mutate: NoWaitForScoresOfAGradient
#pragma unroll
    for (int back = minimum(in_flight, groups); back > 0; --back) pipeline_.consumer_release_before(back);
  }

 private:
  PanelPipeline<Traits> pipeline_;
};

}  // namespace jit::backward_wide
