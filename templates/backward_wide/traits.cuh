// Traits of a block that sums one gradient of wide heads. A block owns a tile of queries, or of keys, as rows of scores,
// and the other side's tiles pass as columns.
#pragma once

#include "backward_wide/smem_layout.cuh"
#include "base/element.cuh"
#include "base/prelude.cuh"
#include "ptx/warpgroup.cuh"
#include "tiles/accumulator.cuh"
#include "tiles/panel_tile.cuh"

namespace jit::backward_wide {

/// The gradient that a block sums.
enum class Gradient { dq, dk, dv };

/// An operand of scores of so many columns: the tile that a block owns, whose first panels stay in registers, and the panels
/// of others that it meets.
template <class Element, int head_dim, int own_register_panels>
struct ScoreOperand {
  using Own = PanelTile<Element, tile_rows, head_dim>;
  using Panel = PanelTile<Element, tile_rows, Own::columns, Own::columns>;
  static constexpr int panels = Own::panels, register_panels = own_register_panels;
  static constexpr int panel_steps = Panel::columns / ElementTraits<Element>::mma_k;
  static_assert(register_panels < panels, "the last panel, which may be short, lies in shared memory");
  /// Registers of a thread with a panel.
  using Fragments = unsigned[panel_steps][4];
};

/// S, of queries and keys: what its products are, panel by panel, the first of which begins it. A lies in shared memory, or in
/// registers.
template <class Config>
struct ScoreProduct : ScoreOperand<typename Config::Element, Config::head_dim, Config::register_panels> {
  template <class A, class B, class D>
  static JIT_DEVICE void multiply_first(D& d, unsigned a, unsigned b) {
    Config::template wgmma_qk_first<A, B>(d, a, b);
  }
  template <class A, class B, class D>
  static JIT_DEVICE void multiply(D& d, unsigned a, unsigned b) {
    Config::template wgmma_qk<A, B>(d, a, b);
  }
  template <class A, class B, class D>
  static JIT_DEVICE void multiply_last(D& d, unsigned a, unsigned b) {
    Config::template wgmma_qk_last<A, B>(d, a, b);
  }
  template <class B, class D, class A>
  static JIT_DEVICE void multiply_first_rs(D& d, const A& a, unsigned b) {
    Config::template wgmma_qk_rs_first<B>(d, a, b);
  }
  template <class B, class D, class A>
  static JIT_DEVICE void multiply_rs(D& d, const A& a, unsigned b) {
    Config::template wgmma_qk_rs<B>(d, a, b);
  }
};
/// dP, of dO and values.
template <class Config>
struct ProbabilityProduct
    : ScoreOperand<typename Config::Element, Config::head_dim_v, Config::register_panels_v> {
  template <class A, class B, class D>
  static JIT_DEVICE void multiply_first(D& d, unsigned a, unsigned b) {
    Config::template wgmma_dov_first<A, B>(d, a, b);
  }
  template <class A, class B, class D>
  static JIT_DEVICE void multiply(D& d, unsigned a, unsigned b) {
    Config::template wgmma_dov<A, B>(d, a, b);
  }
  template <class A, class B, class D>
  static JIT_DEVICE void multiply_last(D& d, unsigned a, unsigned b) {
    Config::template wgmma_dov_last<A, B>(d, a, b);
  }
  template <class B, class D, class A>
  static JIT_DEVICE void multiply_first_rs(D& d, const A& a, unsigned b) {
    Config::template wgmma_dov_rs_first<B>(d, a, b);
  }
  template <class B, class D, class A>
  static JIT_DEVICE void multiply_rs(D& d, const A& a, unsigned b) {
    Config::template wgmma_dov_rs<B>(d, a, b);
  }
};

/// By all blocks of a kernel: shared memory and barriers.
template <class KernelConfig, bool of_queries>
struct BlockTraits {
  using Config = KernelConfig;
  using Element = typename Config::Element;
  static_assert(Config::tile_q == tile_rows && Config::tile_kv == tile_rows,
                "host and device agree on the tiles");
  static_assert(Config::alignment == 16, "TMA wants rows aligned to 16 bytes");
  static_assert(Config::parts % output_warpgroups == 0, "each warpgroup has places of its own");

  static constexpr int warps = warpgroup_size / warp_size;
  static constexpr int output_warps = output_warpgroups * warps;
  static constexpr int threads = (2 + output_warpgroups) * warpgroup_size;
  /// Threads of the warpgroups of scores and outputs, and the barrier at which they meet.
  static constexpr int computing_threads = (1 + output_warpgroups) * warpgroup_size;
  static constexpr int computing_barrier = 1;

  static constexpr SmemLayout layout = smem_layout({.head_dim = Config::head_dim,
                                                    .head_dim_v = Config::head_dim_v,
                                                    .register_panels = Config::register_panels,
                                                    .register_panels_v = Config::register_panels_v,
                                                    .panels = Config::panels,
                                                    .parts = Config::parts,
                                                    .of_queries = of_queries});
  static constexpr int panel_stage_bytes =
      larger(panel_bytes(Config::head_dim), panel_bytes(Config::head_dim_v));
  static constexpr int part_stage_bytes =
      of_queries ? part_bytes(Config::head_dim)
                 : larger(part_bytes(Config::head_dim), part_bytes(Config::head_dim_v));

  /// Scores of one warp, and weights as wgmma reads them.
  using Scores = Accumulator<MmaLayout, 16, tile_rows>;
  using Weights = PanelTile<Element, tile_rows, tile_rows>;
  static constexpr int weight_steps = tile_rows / ElementTraits<Element>::mma_k;
};

template <class KernelConfig, Gradient own_gradient>
struct SumTraits : BlockTraits<KernelConfig, own_gradient == Gradient::dq> {
  using Config = KernelConfig;
  static constexpr Gradient gradient = own_gradient;
  static constexpr int head_dim = gradient == Gradient::dv ? Config::head_dim_v : Config::head_dim;
  static constexpr int panel_width = panel_columns(head_dim);

  /// Columns of the gradient that one product adds to, and those of the other operand.
  using Part = PanelTile<typename Config::Element, tile_rows, part_columns(head_dim), panel_width>;
  using Output = Accumulator<MmaLayout, 16, part_columns(head_dim)>;
  static constexpr int own_parts = output_columns(head_dim) / part_columns(head_dim);  ///< of a warpgroup
  static constexpr int parts = own_parts * output_warpgroups;
  /// The first column of a part: warpgroups have parts in turns.
  static JIT_DEVICE constexpr int first_column(int part) {
    return part % output_warpgroups * output_columns(head_dim) +
           part / output_warpgroups * part_columns(head_dim);
  }
};

}  // namespace jit::backward_wide
