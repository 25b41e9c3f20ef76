#include "generator/kernels/config_space_sm90.h"

#include <algorithm>

#include <fmt/format.h>

#include "generator/problem/functor_node.h"
#include "templates/base/element.cuh"
#include "templates/forward_wgmma/smem_layout.cuh"

namespace jit {

namespace {

// Registers per thread that launch bounds leave.
int launched_registers(const KernelConfig& config) {
  constexpr int file = 65536;
  return file / (sm90::threads_per_block(config) * config.blocks_per_sm) / 8 * 8;
}

}  // namespace

RegisterShares register_shares(const AttentionSpec& spec, const KernelConfig& config) {
  constexpr int most = 240;
  const int consumers = sm90::consumers(config);
  const int launched = launched_registers(config);
  if (launched >= most) return {};
  // The loaders find out which tiles the mask leaves: little work for masks that are arithmetic. Three
  // consumers of 160 registers leave 32.
  const bool reads = !spec.mask.tensors().empty();
  const int producer = consumers == 3 ? (reads ? 56 : 32) : reads ? 56 : spec.mask == Mask() ? 24 : 40;
  const int consumer = (launched * (consumers + 1) - producer) / consumers / 8 * 8;
  return {.producer = producer, .consumer = std::min(most, consumer)};
}

namespace sm90 {

using namespace forward_wgmma;
namespace {

constexpr int max_consumers = 3;
constexpr int max_tile_kv = 256;
constexpr int max_stages = 4;
constexpr int max_stages_q = 2;
constexpr int exponential_group = 8;  // templates/steps/softmax.cuh
// Loop counters, descriptors, softmax state: calibrated on the assembler's reports.
constexpr int other_registers = 30;
constexpr int functor_registers = 8;  // of a score, and of a mask that is asked for each score
// Beside the accumulators of one instruction, of the registers that the kernel is launched with: below that
// the assembler gives up (C7602).
constexpr int instruction_registers = 30;

std::string range(std::string_view name, int value, int most) {
  if (value >= 1 && value <= most) return "";
  return fmt::format("{} = {} must be 1 to {} with mainloop = wgmma", name, value, most);
}

std::string multiple_range(std::string_view name, int value, int step, int most) {
  if (value >= step && value <= most && value % step == 0) return "";
  return fmt::format("{} = {} must be a multiple of {} from {} to {} with mainloop = wgmma", name, value,
                     step, step, most);
}

// Looking for maxima takes up to a tenth of the time (docs/performance.md). But where most tiles exceed those
// of the tiles before, or the first one that is visited shows many queries nothing, tiles are computed twice.
Rescale fastest_rescale(const AttentionSpec& spec) {
  return are_steady(spec.score) && has_row_range(spec.mask) ? Rescale::on_overflow : Rescale::lazy;
}

// Whether O can lie over Q: a warpgroup's rows of both must cover the same bytes.
bool fits_o_over_q(const AttentionSpec& spec) {
  return panel_columns(spec.head_dim) == panel_columns(spec.value_head_dim());
}

}  // namespace

int consumers(const KernelConfig& config) { return config.tile_q / rows_per_consumer; }

bool has_key_words(const AttentionSpec& spec) { return key_words(spec.mask) == 1; }

int threads_per_block(const KernelConfig& config) { return (consumers(config) + 1) * 128; }

int estimated_registers(const AttentionSpec& spec, const KernelConfig& config) {
  const int scores = config.tile_kv / 2;
  const int output = padded_head_dim(spec.value_head_dim()) / 2;
  // Without overlap P takes the place of the scores that it is made of.
  const int p = config.overlap && config.p_in_registers ? config.tile_kv / 4 : 0;
  const int q = config.q_in_registers ? padded_head_dim(spec.head_dim) / 4 : 0;
  return scores + output + p + q + other_registers + (spec.score != Score() ? functor_registers : 0) +
         (has_row_range(spec.mask) ? 0 : functor_registers);
}

int register_cap(const AttentionSpec& spec, const KernelConfig& config) {
  const RegisterShares shares = register_shares(spec, config);
  return shares.consumer == 0 ? 255 : shares.consumer;
}

int smem_bytes(const AttentionSpec& spec, const KernelConfig& config) {
  return forward_wgmma::smem_layout({.head_dim = spec.head_dim,
                                     .head_dim_v = spec.value_head_dim(),
                                     .tile_q = config.tile_q,
                                     .tile_kv = config.tile_kv,
                                     .stages_q = config.stages_q,
                                     .stages_k = config.stages_k,
                                     .stages_v = config.stages_v,
                                     .separate_o = config.separate_o,
                                     .direct_o = config.direct_o,
                                     .p_in_registers = config.p_in_registers,
                                     .key_words = has_key_words(spec),
                                     .persistent = config.persistent})
      .total;
}

std::string config_rejection(const AttentionSpec& spec, const KernelConfig& config,
                             const DeviceLimits& limits) {
  if (limits.arch != Arch{9, 0, 'a'}) {
    return fmt::format("mainloop = wgmma needs sm_90a, this is {}", to_string(limits.arch));
  }
  if (spec.alignment != 16) {
    return fmt::format("mainloop = wgmma needs rows aligned to 16 bytes; spec.alignment is {}",
                       spec.alignment);
  }
  for (const std::string& reason :
       {multiple_range("tile_q", config.tile_q, rows_per_consumer, rows_per_consumer * max_consumers),
        multiple_range("tile_kv", config.tile_kv, 16, max_tile_kv),
        range("stages_q", config.stages_q, max_stages_q), range("stages_k", config.stages_k, max_stages),
        range("stages_v", config.stages_v, max_stages)}) {
    if (!reason.empty()) return reason;
  }
  if (config.polynomial_exp2 < 0 || config.polynomial_exp2 > exponential_group) {
    return fmt::format("polynomial_exp2 = {} must be 0 to {}", config.polynomial_exp2, exponential_group);
  }
  if (config.polynomial_exp2 > 0 && config.rescale == Rescale::on_overflow) {
    return "polynomial_exp2 must be 0 with rescale = on_overflow: a polynomial does not become infinite";
  }
  if (config.order != WarpgroupOrder::free && consumers(config) == 1) {
    return "order must be free with tile_q = 64: one consumer warpgroup has nobody to take turns with";
  }
  if (config.order == WarpgroupOrder::ping_pong && !config.overlap) {
    return "order = ping_pong needs overlap = true";
  }
  if (config.order == WarpgroupOrder::softmax_lock && config.rescale == Rescale::on_overflow) {
    return "rescale must be always or lazy with order = softmax_lock: a repeated tile has no turn";
  }
  const int accumulators = std::max(config.tile_kv, padded_head_dim(spec.value_head_dim())) / 2;
  if (accumulators + instruction_registers > launched_registers(config)) {
    return fmt::format("{} accumulators of one wgmma do not fit the {} registers per thread of {} warpgroups",
                       accumulators, launched_registers(config),
                       (consumers(config) + 1) * config.blocks_per_sm);
  }
  if (config.separate_o && config.direct_o) {
    return "separate_o must be false with direct_o = true: O needs no place in shared memory then";
  }
  if (!config.separate_o && !config.direct_o && !fits_o_over_q(spec)) {
    return fmt::format(
        "separate_o or direct_o must be true with head_dim {} and head_dim_v {}: O does not fit over Q",
        spec.head_dim, spec.value_head_dim());
  }
  return "";
}

std::vector<KernelConfig> config_space(const AttentionSpec& spec, const DeviceLimits& limits) {
  std::vector<KernelConfig> configs;
  if (limits.arch != Arch{9, 0, 'a'}) return configs;
  struct Schedule {
    bool overlap;
    bool p_in_registers;
    WarpgroupOrder order;
    bool q_in_registers = false;
  };
  struct Stages {
    int q, k, v;
    bool separate_o = false;
  };
  const std::vector<Schedule> schedules = {
      {true, true, WarpgroupOrder::ping_pong},     {true, true, WarpgroupOrder::free},
      {false, true, WarpgroupOrder::softmax_lock}, {false, true, WarpgroupOrder::free},
      {true, false, WarpgroupOrder::ping_pong},    {true, true, WarpgroupOrder::ping_pong, true},
  };
  const std::vector<Stages> stage_counts = {{2, 2, 2},       {1, 2, 2}, {2, 3, 3}, {1, 2, 2, true},
                                            {2, 2, 2, true}, {2, 4, 4}, {1, 3, 2}};
  const Rescale rescale = fastest_rescale(spec);
  for (const int consumers : {2, 3, 1}) {
    for (const int tile_kv : {32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192}) {
      for (const Schedule& schedule : schedules) {
        for (const Stages& stages : stage_counts) {
          for (const bool persistent : {true, false}) {
            for (const int blocks_per_sm : {1, 2, 3}) {
              // Left out, because never faster: rescaling at every tile, direct_o, polynomial_exp2.
              KernelConfig config{.mainloop = Mainloop::wgmma,
                                  .tile_q = consumers * rows_per_consumer,
                                  .tile_kv = tile_kv,
                                  .stages_q = stages.q,
                                  .stages_k = stages.k,
                                  .stages_v = stages.v,
                                  .q_in_registers = schedule.q_in_registers,
                                  .p_in_registers = schedule.p_in_registers,
                                  .separate_o = stages.separate_o,
                                  .overlap = schedule.overlap,
                                  .order = schedule.order,
                                  .persistent = persistent,
                                  .rescale = rescale,
                                  .blocks_per_sm = blocks_per_sm};
              if (config.order == WarpgroupOrder::softmax_lock) config.rescale = Rescale::lazy;
              // A second buffer of Q, or another place for O, is for the next tile of queries.
              if (!persistent && (stages.q > 1 || (stages.separate_o && fits_o_over_q(spec)))) continue;
              if (jit::config_rejection(spec, config, limits).empty()) configs.push_back(config);
            }
          }
        }
      }
    }
  }
  return configs;
}

}  // namespace sm90
}  // namespace jit
