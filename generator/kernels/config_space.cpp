#include "generator/kernels/config_space.h"

#include <algorithm>

#include <fmt/format.h>

#include "generator/kernels/config_space_sm90.h"
#include "templates/base/element.cuh"
#include "templates/forward_mma_sync/smem_layout.cuh"

namespace jit {
namespace {

constexpr int max_registers_per_thread = 255;
constexpr int max_warps = 16;
constexpr int max_stages = 4;
constexpr int max_tile = 256;
// Shared memory that the system keeps of every block from sm_80 on (CUDA programming guide, "Compute
// Capability 8.x").
constexpr int reserved_smem_per_block = 1024;
constexpr int max_blocks_per_sm = 8;
// Loop counters and addresses; softmax state and fragments of each 16 rows; what masks and scores add.
// Calibrated on the assembler's reports: a config whose estimate stays within its cap hardly ever spills.
constexpr int other_registers = 24;
constexpr int row_block_registers = 16;
constexpr int functor_registers = 8;
// Estimates further above the cap than this are hopeless; up to it a config may be fast in spite of a few
// spilled bytes.
constexpr int spill_allowance = 40;

bool in_range(int value, int low, int high) { return value >= low && value <= high; }

// What only the mma_sync mainloop asks for.
std::string mma_sync_rejection(const KernelConfig& config) {
  if (config.rescale == Rescale::on_overflow) return "rescale = on_overflow needs mainloop = wgmma";
  if (!in_range(config.warps, 1, max_warps)) {
    return fmt::format("warps = {} must be 1 to {}", config.warps, max_warps);
  }
  if (!in_range(config.tile_q, 16, max_tile) || config.tile_q % (16 * config.warps) != 0) {
    return fmt::format("tile_q = {} must be a multiple of 16 · warps = {}, at most {}", config.tile_q,
                       16 * config.warps, max_tile);
  }
  if (!in_range(config.tile_kv, 16, max_tile) || config.tile_kv % 16 != 0) {
    return fmt::format("tile_kv = {} must be a multiple of 16 from 16 to {}", config.tile_kv, max_tile);
  }
  if (!in_range(config.stages_k, 1, max_stages)) {
    return fmt::format("stages_k = {} must be 1 to {}", config.stages_k, max_stages);
  }
  if (!in_range(config.stages_v, 1, max_stages)) {
    return fmt::format("stages_v = {} must be 1 to {}", config.stages_v, max_stages);
  }
  if (config.ldmatrix_matrices != 2 && config.ldmatrix_matrices != 4) {
    return fmt::format("ldmatrix_matrices = {} must be 2 or 4", config.ldmatrix_matrices);
  }
  return "";
}

}  // namespace

DeviceLimits device_limits(const DeviceInfo& device) {
  return {.arch = native_arch(device),
          .smem_per_block = device.smem_per_block_optin,
          .smem_per_sm = device.smem_per_sm,
          .registers_per_sm = device.registers_per_sm,
          .sm_count = device.sm_count};
}

DeviceLimits device_limits(Arch arch) {
  return {.arch = arch,
          .smem_per_block = smem_per_block_optin(arch),
          .smem_per_sm = smem_per_sm(arch),
          .registers_per_sm = 65536,
          .sm_count = usual_sm_count(arch)};
}

int threads_per_block(const KernelConfig& config) {
  return config.mainloop == Mainloop::wgmma ? sm90::threads_per_block(config) : config.warps * 32;
}

int estimated_registers(const AttentionSpec& spec, const KernelConfig& config) {
  if (config.mainloop == Mainloop::wgmma) return sm90::estimated_registers(spec, config);
  const int row_blocks = config.tile_q / config.warps / 16;
  const int output = row_blocks * padded_head_dim(spec.value_head_dim()) / 8 * 4;
  const int scores = row_blocks * config.tile_kv / 8 * 4;
  const int q = config.q_in_registers ? row_blocks * padded_head_dim(spec.head_dim) / 16 * 4 : row_blocks * 4;
  const bool has_functors = spec.mask != Mask() || spec.score != Score();
  return output + scores + q + other_registers + row_blocks * row_block_registers +
         (has_functors ? functor_registers : 0);
}

int register_cap(const AttentionSpec& spec, const KernelConfig& config, const DeviceLimits& limits) {
  if (config.mainloop == Mainloop::wgmma) return sm90::register_cap(spec, config);
  const int share = limits.registers_per_sm / (config.warps * 32 * config.blocks_per_sm);
  return std::min(max_registers_per_thread, share / 8 * 8);
}

int smem_bytes(const AttentionSpec& spec, const KernelConfig& config) {
  if (config.mainloop == Mainloop::wgmma) return sm90::smem_bytes(spec, config);
  return forward_mma_sync::smem_layout(spec.head_dim, spec.value_head_dim(), config.tile_q, config.tile_kv,
                                       config.stages_k, config.stages_v, config.q_in_registers)
      .total;
}

std::string config_rejection(const AttentionSpec& spec, const KernelConfig& config,
                             const DeviceLimits& limits) {
  for (const ConfigField& field : config_fields()) {
    if (!field.applies_to(config) && field.get(config) != field.get(KernelConfig{})) {
      return fmt::format("{} = {} has no meaning with mainloop = {}; leave it at {}", field.name,
                         field.print(config), config_fields()[0].print(config), field.print(KernelConfig{}));
    }
  }
  if (!in_range(config.blocks_per_sm, 1, max_blocks_per_sm)) {
    return fmt::format("blocks_per_sm = {} must be 1 to {}", config.blocks_per_sm, max_blocks_per_sm);
  }
  const bool is_wgmma = config.mainloop == Mainloop::wgmma;
  if (std::string reason =
          is_wgmma ? sm90::config_rejection(spec, config, limits) : mma_sync_rejection(config);
      !reason.empty()) {
    return reason;
  }
  const int smem = smem_bytes(spec, config);
  if (smem > limits.smem_per_block) {
    return fmt::format("shared memory of {} bytes exceeds the {} that a block may have on {}", smem,
                       limits.smem_per_block, to_string(limits.arch));
  }
  if (config.blocks_per_sm * (smem + reserved_smem_per_block) > limits.smem_per_sm) {
    return fmt::format(
        "blocks_per_sm = {} blocks of {} bytes exceed the {} bytes of shared memory of a multiprocessor",
        config.blocks_per_sm, smem, limits.smem_per_sm);
  }
  const int needed = estimated_registers(spec, config), cap = register_cap(spec, config, limits);
  if (needed > cap + (is_wgmma ? 0 : spill_allowance)) {
    return fmt::format("about {} registers per thread are needed, but at most {} can be had", needed, cap);
  }
  return "";
}

std::vector<KernelConfig> config_space(const AttentionSpec& spec, const DeviceLimits& limits,
                                       bool with_slow_axes) {
  struct Stages {
    int k, v;
  };
  std::vector<KernelConfig> configs = sm90::config_space(spec, limits);
  const std::vector<Swizzle> swizzles =
      with_slow_axes ? std::vector{Swizzle::xor_chunks, Swizzle::none} : std::vector{Swizzle::xor_chunks};
  const std::vector<int> matrices = with_slow_axes ? std::vector{4, 2} : std::vector{4};
  for (const int warps : {4, 8}) {
    for (const int warp_rows : {16, 32}) {
      for (const int tile_kv : {32, 48, 64, 96, 128}) {
        for (const Stages stages : {Stages{1, 1}, {2, 1}, {2, 2}, {3, 2}, {3, 3}, {4, 4}, {1, 2}}) {
          for (const bool q_in_registers : {false, true}) {
            for (const Rescale rescale : {Rescale::lazy, Rescale::always}) {
              for (const Swizzle swizzle : swizzles) {
                for (const int ldmatrix_matrices : matrices) {
                  for (const int blocks_per_sm : {1, 2, 3, 4}) {
                    const KernelConfig config{.tile_q = warps * warp_rows,
                                              .tile_kv = tile_kv,
                                              .warps = warps,
                                              .stages_k = stages.k,
                                              .stages_v = stages.v,
                                              .swizzle = swizzle,
                                              .ldmatrix_matrices = ldmatrix_matrices,
                                              .q_in_registers = q_in_registers,
                                              .rescale = rescale,
                                              .blocks_per_sm = blocks_per_sm};
                    if (config_rejection(spec, config, limits).empty()) configs.push_back(config);
                  }
                }
              }
            }
          }
        }
      }
    }
  }
  return configs;
}

}  // namespace jit
