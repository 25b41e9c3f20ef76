// The cost model of backward_dkv_mma_sync.
#include <algorithm>
#include <cmath>

#include "generator/kernels/backward_cost.h"
#include "generator/kernels/backward_dkv_mma_sync/family.h"
#include "templates/base/element.cuh"

namespace jit {

double Family<BackwardDkvMmaSync>::cycles(const Case& problem, const ProblemShape& shape,
                                          const BackwardDkvMmaSync& config) {
  const double d = padded_head_dim(problem.spec.head_dim),
               dv = padded_head_dim(problem.spec.value_head_dim());
  const double q = config.tile_q, kv = config.tile_kv;
  const int parts =
      column_warps(problem.spec.head_dim, problem.spec.value_head_dim());  // with the same scores
  // Sᵀ = K Qᵀ, dPᵀ = V dOᵀ, dV += Pᵀ dO, dK += dSᵀ Q. With separate blocks, one computes 2 d + dv columns,
  // the other d + dv: uses the mean.
  const double columns =
      config.separate ? parts * (d + 0.5 * dv) + 0.5 * (d + dv) : parts * (d + dv) + d + dv;
  const StepWork step{.flops = 2 * q * kv * columns,
                      .matrix_bytes = (config.warps * q * columns + kv * (d + dv)) * element_bytes,
                      .copy_bytes = q * (d + dv) * element_bytes,
                      .scores = parts * q * kv};
  const double tiles_kv = std::ceil(static_cast<double>(shape.seqlen_kv) / kv);
  const double heads_kv = static_cast<double>(shape.batch * shape.heads_q) / problem.spec.gqa_ratio;
  const double tiles_q = std::ceil(static_cast<double>(shape.seqlen_q) / q);
  const BlockGrid grid{.blocks = tiles_kv * heads_kv * (config.separate ? 2 : 1),
                       .steps = tiles_q * problem.spec.gqa_ratio,
                       .warps = config.warps * parts,
                       .blocks_per_sm = config.blocks_per_sm,
                       .stages = config.stages};
  const Footprint needs = footprint(problem.spec, config);
  const int excess = std::max(0, needs.registers - needs.register_cap);
  return grid_cycles(problem.limits, step, grid) *
         (excess > 0 ? 1.15 + excess * 0.01 : 1.0);  // a likely spill
}

}  // namespace jit
