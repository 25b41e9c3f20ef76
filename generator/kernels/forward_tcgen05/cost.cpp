// The cost model of forward_tcgen05: rates of an SM's units, not fitted to measurements.
#include <algorithm>
#include <cmath>

#include "generator/kernels/block_cover.h"
#include "generator/kernels/forward_tcgen05/family.h"
#include "generator/kernels/forward_tcgen05/step_clocks.h"
#include "templates/base/element.cuh"
#include "templates/forward_tcgen05/smem_layout.cuh"

namespace jit {

using namespace forward_tcgen05;

namespace {

constexpr double reached_share = 0.7;  // of the bottleneck's rate
constexpr double work_tile_clocks = 4000;
constexpr double launch_clocks = 6000;

}  // namespace

double Family<ForwardTcgen05>::cycles(const Case& problem, const ProblemShape& shape, const ForwardTcgen05&) {
  const auto& [spec, limits] = problem;
  const double row_tiles = std::ceil(static_cast<double>(shape.seqlen_q) / tile_q);
  const double work_tiles = static_cast<double>(shape.batch) * shape.heads_q * row_tiles;
  const double steps = std::max(
      1.0, std::ceil(static_cast<double>(shape.seqlen_kv) / tile_kv) * block_cover(spec, tile_q, tile_kv));
  const Blocks blocks = blocks_of(spec);
  const bool has_fast_exponentials = limits.arch.minor == 3;
  const double step = step_clocks({.head_dim = padded_head_dim(spec.head_dim),
                                   .head_dim_v = padded_head_dim(spec.value_head_dim()),
                                   .element_bytes = has_fp8_queries(spec) ? 1 : 2,
                                   .blocks = blocks.count,
                                   .polynomials = polynomial_share(has_fast_exponentials),
                                   .exponentials_a_clock = has_fast_exponentials ? 32.0 : 16.0})
                          .bound() /
                      reached_share;
  const double waves = std::max(1.0, work_tiles * blocks.count / limits.sm_count);
  return launch_clocks + waves * (steps * blocks.query_tiles() * step + work_tile_clocks);
}

}  // namespace jit
