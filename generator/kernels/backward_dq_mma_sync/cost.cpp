// The cost model of backward_dq_mma_sync.
#include <algorithm>
#include <cmath>

#include "generator/kernels/backward_cost.h"
#include "generator/kernels/backward_dq_mma_sync/family.h"
#include "templates/base/element.cuh"

namespace jit {

double Family<BackwardDqMmaSync>::cycles(const Case& problem, const ProblemShape& shape,
                                         const BackwardDqMmaSync& config) {
  const double d = padded_head_dim(problem.spec.head_dim),
               dv = padded_head_dim(problem.spec.value_head_dim());
  const double q = config.tile_q, kv = config.tile_kv;
  const int parts =
      column_warps(problem.spec.head_dim, problem.spec.value_head_dim());  // with the same scores
  const int warps = config.warps * parts;
  // S = Q Kᵀ, dP = dO Vᵀ, dQ += dS K: each warp reads all of K twice and V once, and its rows of Q and dO.
  const StepWork step{
      .flops = 2 * q * kv * (parts * (d + dv) + d),
      .matrix_bytes = (config.warps * kv * (parts * (d + dv) + d) + parts * q * (d + dv)) * element_bytes,
      .copy_bytes = kv * (d + dv) * element_bytes,
      .scores = parts * q * kv};
  const double tiles_q = std::ceil(static_cast<double>(shape.seqlen_q) / q);
  const BlockGrid grid{.blocks = tiles_q * static_cast<double>(shape.batch * shape.heads_q),
                       .steps = std::ceil(static_cast<double>(shape.seqlen_kv) / kv),
                       .warps = warps,
                       .blocks_per_sm = config.blocks_per_sm,
                       .stages = config.stages};
  const Footprint needs = footprint(problem.spec, config);
  const int excess = std::max(0, needs.registers - needs.register_cap);
  return grid_cycles(problem.limits, step, grid) *
         (excess > 0 ? 1.15 + excess * 0.01 : 1.0);  // a likely spill
}

}  // namespace jit
