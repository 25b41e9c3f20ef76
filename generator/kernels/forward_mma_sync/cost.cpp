// The cost model of forward_mma_sync.
#include <algorithm>
#include <cmath>

#include <jit/dtype.h>

#include "generator/kernels/block_cover.h"
#include "generator/kernels/forward_mma_sync/family.h"
#include "templates/base/element.cuh"

namespace jit {
namespace {

// Rates per SM and clock. mma.sync reaches about two thirds of Hopper's tensor rate ("Dissecting the NVIDIA
// Hopper Architecture through Microbenchmarking", Luo et al.). Rates of 2048 (Ampere) and 1024 or less
// (consumer GPUs) scale all estimates of a GPU alike, but also weigh arithmetic against shared memory.
double tensor_flops_per_clock(Arch arch) {
  if (arch.major == 9 || arch.major == 10 || arch.major == 11) return 2700;
  if (arch.major == 8 && arch.minor == 0) return 2048;
  return 1024;
}
// Whether mma.sync multiplies 8-bit elements, at twice the rate (templates/ptx/mma.cuh). Other GPUs upcast
// them to fp16.
bool multiplies_bytes(Arch arch) { return (arch.major == 8 && arch.minor == 9) || arch.major == 12; }

// Instructions per lane to upcast two 8-bit elements to fp16: e5m2 is the upper half of fp16; for e4m3, sm_80
// to sm_87 have no conversion. From SASS; a conversion counts twice, for half the rate.
double upcasting_instructions(const AttentionSpec& spec, Arch arch) {
  if (!has_fp8_queries(spec) || multiplies_bytes(arch)) return 0;
  return spec.dtype == DType::fp8_e4m3 && arch.major == 8 ? 11 : 2;
}
constexpr double sorting_instructions = 4;  // per 16 bytes of 8-bit V that a lane has loaded

constexpr double smem_bytes_per_clock = 128;
constexpr double schedulers = 4;
constexpr double block_overhead_clocks = 3000;  // launch, Q, first K, epilogue

// Fitted to 2,600 timings of tuning on an H200 at ten problems (bench/results, docs/records/notebook.md).
constexpr double softmax_instructions = 12;  // per score and lane
constexpr double lazy_rescale_share = 0.06;  // of the instructions of rescaling in every tile
constexpr double warp_step_instructions =
    560;  // addresses, reductions, waits: whatever does not grow with the tile
constexpr double exposed_smem_share =
    0.2;  // of a warp's shared-memory time that its arithmetic does not cover
constexpr double lone_warp_penalty = 0.1;   // divided by the number of warps of a scheduler
constexpr double step_latency_clocks = 83;  // barriers
constexpr double single_k_clocks = 208;  // a single buffer is only refilled during the other half of a step
constexpr double single_v_clocks = 13;

}  // namespace

double Family<ForwardMmaSync>::cycles(const Case& problem, const ProblemShape& shape,
                                      const ForwardMmaSync& config) {
  const auto& [spec, limits] = problem;
  const bool is_fp8 = has_fp8_queries(spec), as_bytes = is_fp8 && multiplies_bytes(limits.arch);
  const double bytes = size_of(spec.dtype);
  const double d = padded_head_dim(spec.head_dim, facts(spec.dtype).mma_k),
               dv = padded_head_dim(spec.value_head_dim());
  const double warp_rows = config.tile_q / config.warps;

  // One step of one block: its use of each unit of the SM.
  const int parts = column_warps(spec.head_dim, spec.value_head_dim());  // warps with the same scores
  const double warps = config.warps * parts;
  const double flops = 2.0 * config.tile_q * config.tile_kv * (parts * d + dv);
  const double flops_per_product = as_bytes ? 8192 : 4096;
  const double tensor = flops / (tensor_flops_per_clock(limits.arch) * (as_bytes ? 2 : 1));
  const double matrix_bytes =
      warps * (config.tile_kv * (d + dv / parts) + (config.q_in_registers ? 0 : warp_rows * d)) * bytes;
  const double copy_bytes = config.tile_kv * (d + dv) * bytes;
  const double smem = (matrix_bytes + copy_bytes) / smem_bytes_per_clock;
  const double rescale =
      config.tile_q * dv / 32 * (config.rescale == Rescale::always ? 1.0 : lazy_rescale_share);
  const double byte_instructions = is_fp8
                                       ? matrix_bytes / 512 * 8 * upcasting_instructions(spec, limits.arch) +
                                             warps * config.tile_kv * dv / 512 * sorting_instructions
                                       : 0;
  const double issue = (parts * config.tile_q * config.tile_kv * softmax_instructions / 32 + rescale +
                        flops / flops_per_product + matrix_bytes / 512 * 1.5 + copy_bytes / 512 * 3 +
                        byte_instructions + warps * warp_step_instructions) /
                       schedulers;

  // Units overlap across the warps of a scheduler; a single warp uses them one after the other.
  const double warps_per_scheduler = warps * config.blocks_per_sm / schedulers;
  const double busiest = std::max({tensor, smem, issue}) * config.blocks_per_sm;
  const double alone =
      (tensor + smem * exposed_smem_share + issue) * schedulers / warps * std::max(1.0, warps / schedulers);
  const double exposed = (config.stages_k == 1 ? single_k_clocks : 0) +
                         (config.stages_v == 1 ? single_v_clocks : 0) + step_latency_clocks;
  const double overlap = 1.0 + lone_warp_penalty / warps_per_scheduler;
  const double step = std::max(busiest, alone) * overlap + exposed;

  // The whole grid: waves of blocks_per_sm blocks per SM.
  const double tiles_q = std::ceil(static_cast<double>(shape.seqlen_q) / config.tile_q);
  const double blocks = std::max(1.0, tiles_q * static_cast<double>(shape.batch * shape.heads_q));
  const double slots = static_cast<double>(limits.sm_count) * config.blocks_per_sm;
  const double steps = std::ceil(static_cast<double>(shape.seqlen_kv) / config.tile_kv) *
                       block_cover(spec, config.tile_q, config.tile_kv);
  const double waves = std::ceil(blocks / slots);
  // Blocks alone on their SM run without contention.
  const double last_wave_share =
      std::min(1.0, std::max(1.0 / config.blocks_per_sm, (blocks - (waves - 1) * slots) / slots));
  const double step_alone = std::max(busiest * last_wave_share, alone) * overlap + exposed;
  double cycles =
      (waves - 1) * (steps * step + block_overhead_clocks) + steps * step_alone + block_overhead_clocks;
  // A likely spill: slower, and never the untuned default.
  const Footprint needs = footprint(spec, config);
  const int spare = needs.register_cap - needs.registers;
  if (spare < 0) cycles *= 1.15 - spare * 0.01;
  return cycles;
}

}  // namespace jit
