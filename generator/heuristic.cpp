#include "generator/heuristic.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <jit/error.h>

#include "templates/smem_layout.cuh"

namespace jit {
namespace {

// Per multiprocessor and clock. mma.sync reaches about 62 % of Hopper's tensor rate ("Dissecting the NVIDIA
// Hopper Architecture through Microbenchmarking", Luo et al.); Ampere's 2048 and the consumer parts' 1024 and
// less only scale all estimates of a GPU alike, but they weigh arithmetic against shared memory.
double tensor_flops_per_clock(Arch arch) {
  if (arch.major == 9 || arch.major == 10 || arch.major == 11) return 2560;
  if (arch.major == 8 && arch.minor == 0) return 2048;
  return 1024;
}
constexpr double smem_bytes_per_clock = 128;
constexpr double schedulers = 4;
// Instructions per score and lane of the softmax, and per element of a rescaled output.
constexpr double softmax_instructions = 6.5;
constexpr double block_overhead_clocks = 3000;  // launch, Q, first K, epilogue

}  // namespace

ProblemShape typical_shape(const DeviceLimits& limits) {
  return {.batch = 1, .heads_q = limits.sm_count, .seqlen_q = 2048, .seqlen_kv = 2048};
}

double estimated_cycles(const AttentionSpec& spec, const KernelConfig& config, const ProblemShape& shape,
                        const DeviceLimits& limits) {
  const double d = padded_head_dim(spec.head_dim), dv = padded_head_dim(spec.value_head_dim());
  const double warp_rows = config.tile_q / config.warps;

  // One step of one block: what it asks of each unit of the multiprocessor.
  const double flops = 2.0 * config.tile_q * config.tile_kv * (d + dv);
  const double tensor = flops / tensor_flops_per_clock(limits.arch);
  const double matrix_bytes =
      config.warps * (config.tile_kv * (d + dv) + (config.q_in_registers ? 0 : warp_rows * d)) * 2;
  const double copy_bytes = config.tile_kv * (d + dv) * 2;
  const double smem = (matrix_bytes + copy_bytes) / smem_bytes_per_clock;
  const double rescale =
      config.rescale == Rescale::always ? config.tile_q * dv / 32 : config.tile_q * dv / 32 * 0.15;
  const double issue = (config.tile_q * config.tile_kv * softmax_instructions / 32 + rescale + flops / 4096 +
                        matrix_bytes / 512 * 1.5 + copy_bytes / 512 * 3) /
                       schedulers;

  // Units overlap between the warps of a scheduler; one warp alone waits for each in turn.
  const double warps_per_scheduler = config.warps * config.blocks_per_sm / schedulers;
  const double busiest = std::max({tensor, smem, issue}) * config.blocks_per_sm;
  const double alone =
      (tensor + smem * 0.5 + issue) * schedulers / config.warps * std::max(1.0, config.warps / schedulers);
  // A single buffer hides a load only behind the other half of a step; two barriers a step cost most in small
  // blocks.
  const double exposed = (config.stages_k == 1 ? 150.0 : 0.0) + (config.stages_v == 1 ? 60.0 : 0.0) + 60.0;
  const double step = std::max(busiest, alone) * (1.0 + 0.35 / warps_per_scheduler) + exposed;

  // The whole grid: waves of blocks_per_sm blocks on each multiprocessor.
  const double tiles_q = std::ceil(static_cast<double>(shape.seqlen_q) / config.tile_q);
  const double blocks = std::max(1.0, tiles_q * static_cast<double>(shape.batch * shape.heads_q));
  const double slots = static_cast<double>(limits.sm_count) * config.blocks_per_sm;
  const double steps = std::ceil(static_cast<double>(shape.seqlen_kv) / config.tile_kv);
  const double waves = std::ceil(blocks / slots);
  // Blocks that have a multiprocessor to themselves do not wait for neighbours.
  const double last_wave_share =
      std::min(1.0, std::max(1.0 / config.blocks_per_sm, (blocks - (waves - 1) * slots) / slots));
  const double step_alone =
      std::max(busiest * last_wave_share, alone) * (1.0 + 0.35 / warps_per_scheduler) + exposed;
  double cycles =
      (waves - 1) * (steps * step + block_overhead_clocks) + steps * step_alone + block_overhead_clocks;
  // A likely spill: slower, and never the untuned default.
  const int spare = register_cap(config, limits) - estimated_registers(spec, config);
  if (spare < 0) cycles *= 1.05 - spare * 0.01;
  return cycles;
}

std::vector<KernelConfig> ranked_configs(const AttentionSpec& spec, const ProblemShape& shape,
                                         const DeviceLimits& limits) {
  std::vector<KernelConfig> configs = config_space(spec, limits);
  if (configs.empty()) {
    const KernelConfig smallest{.tile_q = 64, .tile_kv = 32, .warps = 4, .stages_k = 1, .stages_v = 1};
    throw Error(ErrorCode::no_valid_config, "configure", "spec",
                fmt::format("no config fits {} on {}: {}", to_string(spec), to_string(limits.arch),
                            config_rejection(spec, smallest, limits)));
  }
  std::vector<std::pair<double, std::size_t>> order;
  for (std::size_t i = 0; i < configs.size(); ++i)
    order.emplace_back(estimated_cycles(spec, configs[i], shape, limits), i);
  std::sort(order.begin(), order.end());
  std::vector<KernelConfig> ranked;
  for (const auto& [cycles, i] : order) ranked.push_back(configs[i]);
  return ranked;
}

}  // namespace jit
