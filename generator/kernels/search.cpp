#include "generator/kernels/search.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include <fmt/format.h>
#include <jit/error.h>
#include <jit/spec_table.h>

#include "generator/kernels/families.h"
#include "generator/kernels/fixed_bits.h"
#include "runtime/parallel.h"

namespace jit {
namespace {

bool has_sure_registers(const AttentionSpec& spec, const KernelConfig& config) {
  const Footprint needs = footprint(spec, config);
  return needs.registers + needs.register_doubt <= needs.register_cap;
}

bool is_deterministic(const KernelConfig& config) { return deterministic_config(config) == config; }

void keep_deterministic(std::vector<KernelConfig>& configs) {
  std::erase_if(configs, [](const KernelConfig& config) { return !is_deterministic(config); });
}

}  // namespace

ProblemShape typical_shape(const DeviceLimits& limits, const AttentionSpec& spec) {
  return {.batch = 1,
          .heads_q = limits.sm_count,
          .seqlen_q = is_plain(spec) ? 2048 : 64,
          .seqlen_kv = 2048,
          .any_size = true};
}

ProblemShape deciding_shape(const AttentionSpec& spec, const ProblemShape& shape) {
  if (spec.split_keys == 0 || shape.pass != Pass::forward || has_fixed_bits(spec)) return shape;
  constexpr std::int64_t heads_kv = 8;  // a batch of decoding requests, an engine's most frequent call
  return {.batch = 64,
          .heads_q = heads_kv * spec.gqa_ratio,
          .seqlen_q = 1,
          .seqlen_kv = 4096,
          .tma = shape.tma,
          .has_device_lengths = true};
}

std::vector<KernelConfig> ranked_configs(const AttentionSpec& spec, const ProblemShape& given,
                                         const DeviceLimits& limits) {
  const Case problem{spec, limits};
  const ProblemShape shape = deciding_shape(spec, given);
  std::vector<KernelConfig> configs = config_space(problem, shape);
  std::erase_if(configs, [&](const KernelConfig& config) { return !has_room(problem, shape, config); });
  if (configs.empty()) {
    ProblemShape known = shape;
    known.has_device_lengths = false;
    if (shape.has_device_lengths && !config_space(problem, known).empty())
      throw Error(
          ErrorCode::no_valid_config, "configure", "spec",
          fmt::format("no kernel of {} on {} reads lengths that only the device knows: leave out seqused_q, "
                      "seqused_k and cache_leftpad, or lay sequences end to end (cu_seqlens_q, cu_seqlens_k)",
                      to_string(spec), to_string(limits.arch)));
    throw Error(ErrorCode::no_valid_config, "configure", "spec",
                fmt::format("no config fits {} on {}: {}", to_string(spec), to_string(limits.arch),
                            smallest_rejection(problem, shape.pass)));
  }
  std::vector<std::pair<double, std::size_t>> order;
  for (std::size_t i = 0; i < configs.size(); ++i)
    order.emplace_back(estimated_cycles(problem, shape, configs[i]), i);
  std::sort(order.begin(), order.end());
  std::vector<KernelConfig> ranked;
  for (const auto& [cycles, i] : order) ranked.push_back(configs[i]);
  return ranked;
}

std::vector<KernelConfig> untuned_order(const AttentionSpec& spec, const ProblemShape& shape,
                                        const DeviceLimits& limits, bool deterministic) {
  std::vector<KernelConfig> configs = ranked_configs(spec, shape, limits);
  if (deterministic) keep_deterministic(configs);
  std::stable_partition(configs.begin(), configs.end(),
                        [&](const KernelConfig& config) { return has_sure_registers(spec, config); });
  return configs;
}

std::vector<KernelConfig> first_untuned(const AttentionSpec& spec, std::span<const ProblemShape> shapes,
                                        const DeviceLimits& limits, bool deterministic) {
  const Case problem{spec, limits};
  // Groups shapes by the families that serve them, which determine the configs.
  std::map<std::vector<std::string>, std::vector<std::size_t>> alike;
  for (std::size_t i = 0; i < shapes.size(); ++i)
    alike[competing_entries(problem, deciding_shape(spec, shapes[i]))].push_back(i);
  std::vector<KernelConfig> firsts(shapes.size());
  for (const auto& entry : alike) {
    const std::vector<std::size_t>& places = entry.second;
    std::vector<KernelConfig> configs = config_space(problem, deciding_shape(spec, shapes[places.front()]));
    if (configs.empty()) ranked_configs(spec, shapes[places.front()], limits);  // throws
    if (deterministic) keep_deterministic(configs);
    std::vector<char> is_unsure(configs.size());
    for (std::size_t i = 0; i < configs.size(); ++i) is_unsure[i] = !has_sure_registers(spec, configs[i]);
    in_parallel(places.size(), [&](std::size_t i) {
      const ProblemShape shape = deciding_shape(spec, shapes[places[i]]);
      std::tuple<char, double, std::size_t> first = {1, HUGE_VAL, 0};
      for (std::size_t config = 0; config < configs.size(); ++config) {
        if (!has_room(problem, shape, configs[config])) continue;
        first =
            std::min(first, {is_unsure[config], estimated_cycles(problem, shape, configs[config]), config});
      }
      firsts[places[i]] = configs[std::get<2>(first)];
    });
  }
  return firsts;
}

bool has_deterministic(const AttentionSpec& spec, const ProblemShape& shape, const DeviceLimits& limits) {
  return std::ranges::any_of(config_space({spec, limits}, shape), is_deterministic);
}

}  // namespace jit
