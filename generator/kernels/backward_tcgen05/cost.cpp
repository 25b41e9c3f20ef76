// The cost model of backward_tcgen05: rates of an SM's units, not fitted to measurements.
#include <algorithm>
#include <cmath>

#include "generator/kernels/backward_tcgen05/family.h"
#include "generator/kernels/block_cover.h"
#include "generator/kernels/one_pass.h"
#include "templates/backward_tcgen05/smem_layout.cuh"
#include "templates/base/element.cuh"

namespace jit {

using namespace backward_tcgen05;

namespace {

// Rates of an SM per clock.
constexpr double flops = 8192, shared_bytes = 128, exponentials = 16;
constexpr double bytes_of_memory = 4000;  // of the GPU
constexpr double reached_share = 0.6;     // of the bottleneck's rate: units wait for one another
constexpr double key_tile_clocks = 6000;  // loading keys, storing gradients
constexpr double with_turns = 1.1;        // an estimate

// Shared-memory bytes of a step: operands of products, tiles that TMA and score warps write, and dQ, written
// and read.
double step_bytes(double d, double dv) {
  constexpr double rows = 128, element = 2;
  const double by_products = rows * element * (2 * d + 2 * dv + dv + d + rows + d);
  const double written = rows * element * (d + dv + rows), dq = 2 * rows * d * 4;
  return by_products + written + dq;
}

}  // namespace

double Family<BackwardTcgen05>::cycles(const Case& problem, const ProblemShape& shape,
                                       const BackwardTcgen05& config) {
  const auto& [spec, limits] = problem;
  const double d = padded_head_dim(spec.head_dim), dv = padded_head_dim(spec.value_head_dim());
  constexpr double scores = static_cast<double>(tile_q) * tile_kv;
  const double step = std::max({2 * scores * (3 * d + 2 * dv) / flops, step_bytes(d, dv) / shared_bytes,
                                scores / exponentials}) /
                      reached_share * (config.deterministic ? with_turns : 1);
  const double steps = std::ceil(static_cast<double>(shape.seqlen_q) / tile_q) * spec.gqa_ratio *
                       block_cover(spec, tile_q, tile_kv);
  const int heads = shape.batch * shape.heads_q / spec.gqa_ratio;
  const int key_tiles = static_cast<int>(std::ceil(static_cast<double>(shape.seqlen_kv) / tile_kv));
  const double tiles_of_block = config.deterministic && one_pass::shares_heads(spec)
                                    ? one_pass::head_shares(heads, key_tiles, limits.sm_count, 1).rounds
                                    : std::ceil(static_cast<double>(heads) * key_tiles / limits.sm_count);
  // The kernels around read dO and O, and clear, read and round sums of dQ.
  const double around = (2 * 2 * dv + 2 * 4 * d + 2 * d) * shape.batch * shape.heads_q * shape.seqlen_q;
  return tiles_of_block * (steps * step + key_tile_clocks) + around / bytes_of_memory;
}

}  // namespace jit
