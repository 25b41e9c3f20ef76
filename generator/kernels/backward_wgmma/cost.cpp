// The cost model of backward_wgmma.
#include <cmath>

#include "generator/kernels/backward_wgmma/family.h"
#include "templates/base/element.cuh"

namespace jit {
namespace {

// Of a multiprocessor (NVIDIA, "H100 Tensor Core GPU Architecture"): dense 16-bit products.
constexpr double flops_per_clock = 4096;
constexpr double step_clocks = 2000;   // of a step, in which no product runs (docs/notebook.md)
constexpr double block_clocks = 6000;  // keys that come, gradients that leave

}  // namespace

double Family<BackwardWgmma>::cycles(const Case& problem, const ProblemShape& shape,
                                     const BackwardWgmma& config) {
  const double d = padded_head_dim(problem.spec.head_dim),
               dv = padded_head_dim(problem.spec.value_head_dim());
  const double q = config.tile_q, kv = backward_wgmma::tile_kv(problem.spec);
  const double step = 2 * q * kv * (3 * d + 2 * dv) / flops_per_clock + (backward_wgmma::has_query_consumer(problem.spec, config) && !backward_wgmma::has_roles(problem.spec) ? 700 : step_clocks);
  const double steps = std::ceil(static_cast<double>(shape.seqlen_q) / q) * problem.spec.gqa_ratio;
  const double blocks = std::ceil(static_cast<double>(shape.seqlen_kv) / kv) *
                        static_cast<double>(shape.batch * shape.heads_q) / problem.spec.gqa_ratio;
  return std::ceil(blocks / problem.limits.sm_count) * (steps * step + block_clocks);
}

}  // namespace jit
