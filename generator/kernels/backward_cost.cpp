#include "generator/kernels/backward_cost.h"

#include <algorithm>
#include <cmath>

namespace jit {
namespace {

// Rates per SM and clock, as in the cost model of forward_mma_sync; not fitted to timings of backward
// kernels.
double tensor_flops_per_clock(Arch arch) {
  if (arch.major == 9 || arch.major == 10 || arch.major == 11) return 2700;
  if (arch.major == 8 && arch.minor == 0) return 2048;
  return 1024;
}
constexpr double smem_bytes_per_clock = 128;
constexpr double schedulers = 4;
constexpr double block_overhead_clocks = 3000;  // launch, prologue and epilogue
constexpr double score_instructions = 10;       // per score and lane
constexpr double warp_step_instructions = 560;  // addresses and waits: independent of tile size
constexpr double exposed_smem_share = 0.2;   // of a warp's shared-memory time, not covered by its arithmetic
constexpr double step_latency_clocks = 83;   // barriers
constexpr double single_stage_clocks = 800;  // exposed: a single buffer cannot hide the latency of its loads

}  // namespace

double grid_cycles(const DeviceLimits& limits, const StepWork& step, const BlockGrid& grid) {
  const double tensor = step.flops / tensor_flops_per_clock(limits.arch);
  const double smem = (step.matrix_bytes + step.copy_bytes) / smem_bytes_per_clock;
  const double issue =
      (step.scores * score_instructions / 32 + step.flops / 4096 + step.matrix_bytes / 512 * 1.5 +
       step.copy_bytes / 512 * 3 + grid.warps * warp_step_instructions) /
      schedulers;
  // Units overlap across the warps of a scheduler; a single warp uses them one after the other.
  const double busiest = std::max({tensor, smem, issue}) * grid.blocks_per_sm;
  const double alone = (tensor + smem * exposed_smem_share + issue) * schedulers / grid.warps *
                       std::max(1.0, grid.warps / schedulers);
  const double exposed =
      step_latency_clocks + (grid.stages == 1 ? single_stage_clocks / grid.blocks_per_sm : 0);
  const double slots = static_cast<double>(limits.sm_count) * grid.blocks_per_sm;
  const double waves = std::ceil(std::max(1.0, grid.blocks) / slots);
  // Blocks alone on their SM in the last wave run without contention.
  const double last_share =
      std::min(1.0, std::max(1.0 / grid.blocks_per_sm, grid.blocks / slots - (waves - 1)));
  const double full = std::max(busiest, alone) + exposed;
  const double last = std::max(busiest * last_share, alone) + exposed;
  return (waves - 1) * (grid.steps * full + block_overhead_clocks) + grid.steps * last +
         block_overhead_clocks;
}

}  // namespace jit
