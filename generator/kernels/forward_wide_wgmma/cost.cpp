// The cost model of forward_wide_wgmma.
#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "generator/kernels/block_cover.h"
#include "generator/kernels/forward_wide_wgmma/family.h"
#include "templates/base/element.cuh"
#include "templates/forward_wide_wgmma/smem_layout.cuh"

namespace jit {

using namespace forward_wide_wgmma;

namespace {

// Clocks of an SM. A wgmma of N columns takes N / 2 clocks.
constexpr double tensor_share =
    0.68;  // share of their rate that the tensor cores reach (docs/records/notebook.md)
constexpr double work_tile_clocks = 4000;
constexpr double launch_clocks = 6000;
constexpr double unfit_stages =
    0.02;  // slowdown of a step per stage that a tile of keys lacks or does not need

}  // namespace

double Family<ForwardWideWgmma>::cycles(const Case& problem, const ProblemShape& shape,
                                        const ForwardWideWgmma& config) {
  const auto& [spec, limits] = problem;
  const double row_tiles = std::ceil(static_cast<double>(shape.seqlen_q) / rows_per_warpgroup);
  const double work_tiles = static_cast<double>(shape.batch) * shape.heads_q * row_tiles;
  const double tiles = std::max(1.0, std::ceil(static_cast<double>(shape.seqlen_kv) / tile_kv) *
                                         block_cover(spec, rows_per_warpgroup, tile_kv));
  const double scores = tile_kv / 2.0 * padded_head_dim(spec.head_dim) / 16;
  const double outputs = tile_kv / 16.0 * output_columns(spec.value_head_dim()) * output_warpgroups / 2;
  const int panels = panel_count(spec.head_dim);
  const double off = std::abs(panels - config.stages_k);
  const double step = (scores + outputs) / tensor_share * (1 + unfit_stages * off);
  const double waves = std::max(1.0, work_tiles / limits.sm_count);
  return launch_clocks + waves * (tiles * step + work_tile_clocks);
}

}  // namespace jit
