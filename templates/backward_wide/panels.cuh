// The pipelines of what comes by: panels, which the score warpgroup multiplies, and parts, which are multiplied with
// weights. A producer warp fills each of them.
#pragma once

#include "backward_wide/traits.cuh"
#include "base/prelude.cuh"
#include "pipeline/pipeline.cuh"
#include "ptx/bulk_copy.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/wgmma.cuh"
#include "tiles/box_copy.cuh"
#include "tiles/shared_words.cuh"

namespace jit::backward_wide {

template <class Traits>
using PanelPipeline = Pipeline<Traits::Config::panels, Traits::panel_stage_bytes>;
template <class Traits>
using PartPipeline = Pipeline<Traits::Config::parts, Traits::part_stage_bytes>;

/// Loads the tile from column `first` on that a stage has. By a whole warp.
template <class Tile, class Ring, class Map, class Box>
JIT_DEVICE void load_stage(Ring& ring, const Map& map, const Box& box, int first) {
  ring.producer_acquire();  // mutate: StageOfAWideGradientIsOverwritten
  if (lane_id() == 0) {
    mbarrier_arrive_expect_tx(ring.full(), Tile::bytes);
    load_tile<Tile>(ring.tile(), map, ring.full(), box, first);
  }
  ring.advance();
}
/// Loads all panels of an operand of scores.
template <class Operand, class Ring, class Map, class Box>
JIT_DEVICE void load_panels(Ring& ring, const Map& map, const Box& box) {
#pragma unroll 1
  for (int panel = 0; panel < Operand::panels; ++panel)
    load_stage<typename Operand::Panel>(ring, map, box, panel * Operand::Panel::columns);
}
/// Loads all parts of the other operand of a gradient.
template <class Traits, class Ring, class Map, class Box>
JIT_DEVICE void load_parts(Ring& ring, const Map& map, const Box& box) {
#pragma unroll 1
  for (int part = 0; part < Traits::parts; ++part)
    load_stage<typename Traits::Part>(ring, map, box, Traits::first_column(part));
}

/// Panels as the score warpgroup takes them. Each is a group of products.
template <class Traits>
class PanelReader {
  static constexpr int in_flight = 2;  // groups

 public:
  JIT_DEVICE explicit PanelReader(unsigned smem) : ring_(smem, Traits::layout.panels) {}

  /// Starts the products of the tile at shared address `own` and the next one that comes by; `begins`: the sum has no
  /// value before. So many groups were started since the last `finish`.
  template <class Operand, bool begins, int before, class Product>
  JIT_DEVICE void multiply(Product& product, unsigned own) {
    using A = typename Operand::Own;
    using B = typename Operand::Panel;
    wgmma_hold(product.registers[0]);
#pragma unroll
    for (int panel = 0; panel < Operand::panels; ++panel) {
      ring_.consumer_wait();  // mutate: NoWaitForAPanelOfAGradient
      const unsigned a = lower_word(A::along_columns(own + panel * A::panel_bytes, 0, 0)),
                     b = lower_word(B::along_columns(uniform(ring_.tile()), 0, 0));
      wgmma_fence();
      if (begins && panel == 0) {
        Operand::template multiply_first<A, B>(product.registers[0], a, b);
      } else if (panel == Operand::panels - 1) {
        Operand::template multiply_last<A, B>(product.registers[0], a, b);
      } else {
        Operand::template multiply<A, B>(product.registers[0], a, b);
      }
      wgmma_commit_group();
      ring_.advance();
      if (before + panel >= in_flight) {
        wgmma_wait_group<in_flight>();
        ring_.consumer_release_before(in_flight + 1);  // mutate: PanelOfAGradientReleasedEarly
      }
    }
  }

  /// Waits for all products of so many groups.
  template <int groups>
  JIT_DEVICE void finish() {
    wgmma_wait_group<0>();  // mutate: NoWaitForScoresOfAGradient
#pragma unroll
    for (int back = minimum(in_flight, groups); back > 0; --back) ring_.consumer_release_before(back);
  }

 private:
  PanelPipeline<Traits> ring_;
};

}  // namespace jit::backward_wide
