// The cost model of forward_mma_tma: use of an SM's units per step, not compared with timings.
#include <algorithm>
#include <cmath>

#include <jit/dtype.h>

#include "generator/kernels/block_cover.h"
#include "generator/kernels/forward_mma_tma/family.h"
#include "templates/base/element.cuh"

namespace jit {

using namespace forward_mma_tma;

namespace {

// Rates of an SM per clock, relative to forward_mma_sync's: block-scaled FP8 has four times the 16-bit rate.
constexpr double tensor_flops_per_clock = 1024, fp8_rate = 4;
constexpr double smem_bytes_per_clock = 128, schedulers = 4;
constexpr double softmax_instructions = 12;     // per score and lane, as in forward_mma_sync
constexpr double warp_step_instructions = 220;  // reductions of half as many rows, waits; no copies
constexpr double step_clocks = 60;
constexpr double work_tile_clocks = 1500, launch_clocks = 1500;
// With few queries per sequence, a query tile of one head is nearly empty, but reads all keys.
constexpr double few_queries = 64, nearly_empty = 4;

}  // namespace

double Family<ForwardMmaTma>::cycles(const Case& problem, const ProblemShape& shape,
                                     const ForwardMmaTma& config) {
  const auto& [spec, limits] = problem;
  const bool is_fp8 = has_fp8_queries(spec);
  const double columns =
      padded_head_dim(spec.head_dim, facts(spec.dtype).mma_k) + padded_head_dim(spec.value_head_dim());
  const double scores = static_cast<double>(config.tile_q) * config.tile_kv, warps = computing_warps(config);
  const double tensor = 2 * scores * columns / (tensor_flops_per_clock * (is_fp8 ? fp8_rate : 1));
  const double matrix_bytes = warps * config.tile_kv * columns * size_of(spec.dtype);
  const double smem = matrix_bytes / smem_bytes_per_clock;
  const double issue = (scores * softmax_instructions / 32 + 2 * scores * columns / (is_fp8 ? 8192 : 4096) +
                        matrix_bytes / 512 * 1.5 + warps * warp_step_instructions) /
                       schedulers;
  // A scheduler's second warp multiplies during the softmax of the first.
  const double step =
      (warps > schedulers ? std::max({tensor, smem, issue}) : std::max(tensor, smem) + issue) + step_clocks;
  const double tiles = std::max(1.0, std::ceil(static_cast<double>(shape.seqlen_q) / config.tile_q) *
                                         static_cast<double>(shape.batch * shape.heads_q));
  const double steps = std::ceil(static_cast<double>(shape.seqlen_kv) / config.tile_kv) *
                       block_cover(spec, config.tile_q, config.tile_kv);
  const double waves = std::max(1.0, tiles / limits.sm_count);
  const double cycles = launch_clocks + waves * (steps * step + work_tile_clocks);
  return !is_plain(spec) && static_cast<double>(shape.seqlen_q) <= few_queries ? nearly_empty * cycles
                                                                               : cycles;
}

}  // namespace jit
