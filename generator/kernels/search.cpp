#include "generator/kernels/search.h"

#include <algorithm>

#include <fmt/format.h>
#include <jit/error.h>

#include "generator/kernels/families.h"

namespace jit {

ProblemShape typical_shape(const DeviceLimits& limits) {
  return {.batch = 1, .heads_q = limits.sm_count, .seqlen_q = 2048, .seqlen_kv = 2048};
}

std::vector<KernelConfig> ranked_configs(const AttentionSpec& spec, const ProblemShape& shape,
                                         const DeviceLimits& limits) {
  const Case problem{spec, limits};
  std::vector<KernelConfig> configs = config_space(problem, shape);
  if (configs.empty()) {
    throw Error(ErrorCode::no_valid_config, "configure", "spec",
                fmt::format("no config fits {} on {}: {}", to_string(spec), to_string(limits.arch),
                            smallest_rejection(problem)));
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
                                        const DeviceLimits& limits) {
  std::vector<KernelConfig> configs = ranked_configs(spec, shape, limits);
  std::stable_partition(configs.begin(), configs.end(), [&](const KernelConfig& config) {
    const Footprint needs = footprint(spec, config);
    return needs.registers + needs.register_doubt <= needs.register_cap;
  });
  return configs;
}

}  // namespace jit
