#include "generator/kernels/families.h"

#include <algorithm>

#include <fmt/format.h>
#include <jit/spec_table.h>
#include <jit/tuning.h>

namespace jit {
namespace {

// Of two configs of one family.
bool agree(const KernelConfig& a, const KernelConfig& b, Affects least) {
  if (a.index() != b.index()) return false;
  return std::visit(
      [&]<class Config>(const Config& own) {
        return agree(Family<Config>::fields(), own, std::get<Config>(b), least);
      },
      a);
}

// Whether the config's kernel can read the tensors of a call, of a family that suits it.
template <class Config>
bool can_read(const ProblemShape& shape, const Config& config) {
  if constexpr (requires { Family<Config>::can_read(shape, config); })
    return Family<Config>::can_read(shape, config);
  return true;
}

// The config that needs least of those that could serve the spec.
template <class Config>
Config smallest_for(const AttentionSpec& spec) {
  if constexpr (requires { Family<Config>::smallest_for(spec); }) return Family<Config>::smallest_for(spec);
  return Family<Config>::smallest;
}

// What kernels must be able to read of a call of this shape.
ProblemShape as_served(const AttentionSpec& spec, ProblemShape shape) {
  shape.is_plain = is_plain(spec);
  shape.has_device_lengths |= !shape.is_plain;
  return shape;
}

}  // namespace

Pass pass_of(const KernelConfig& config) {
  return std::visit([]<class Config>(const Config&) { return Family<Config>::pass; }, config);
}

std::string config_rejection(const Case& problem, const KernelConfig& config) {
  return std::visit([&](const auto& own) { return family_rejection(problem, own); }, config);
}

std::string config_rejection(const AttentionSpec& spec, const KernelConfig& config,
                             const DeviceLimits& limits) {
  return config_rejection({spec, limits}, config);
}

std::vector<KernelConfig> config_space(const Case& problem, const ProblemShape& shape) {
  std::vector<KernelConfig> configs;
  const ProblemShape served = as_served(problem.spec, shape);
  for_each_family([&]<class Config>(const Config&) {
    if (Family<Config>::pass != served.pass || !Family<Config>::suits(served)) return;
    for (const Config& config : legal_space<Config>(problem)) {
      if (can_read(served, config)) configs.push_back(config);
    }
  });
  return configs;
}

bool can_serve(const Case& problem, const ProblemShape& shape, const KernelConfig& config) {
  const ProblemShape served = as_served(problem.spec, shape);
  return std::visit(
             [&]<class Config>(const Config& own) {
               return Family<Config>::pass == served.pass && Family<Config>::suits(served) &&
                      can_read(served, own) && family_rejection(problem, own).empty();
             },
             config) &&
         has_room(problem, shape, config);
}

bool has_room(const Case& problem, const ProblemShape& shape, const KernelConfig& config) {
  return std::visit(
      [&]<class Config>(const Config& own) {
        if constexpr (requires { Family<Config>::has_room(problem.spec, shape, own); })
          return Family<Config>::has_room(problem.spec, shape, own);
        return true;
      },
      config);
}

std::string smallest_rejection(const Case& problem, Pass pass) {
  std::string reasons;
  for_each_family([&]<class Config>(const Config&) {
    if (Family<Config>::pass != pass) return;
    reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", Family<Config>::name,
                           family_rejection(problem, smallest_for<Config>(problem.spec)));
  });
  return reasons;
}

std::vector<std::string> competing_entries(const Case& problem, const ProblemShape& shape) {
  std::vector<std::string> entries;
  const ProblemShape served = as_served(problem.spec, shape);
  for_each_family([&]<class Config>(const Config&) {
    if (Family<Config>::pass == served.pass && Family<Config>::suits(served) &&
        family_rejection(problem, smallest_for<Config>(problem.spec)).empty())
      entries.push_back(fmt::format("{}/kernel.cuh", Family<Config>::name));
  });
  return entries;
}

Footprint footprint(const AttentionSpec& spec, const KernelConfig& config) {
  return std::visit([&]<class Config>(const Config& own) { return Family<Config>::footprint(spec, own); },
                    config);
}

bool reads_device_lengths(const AttentionSpec& spec, const KernelConfig& config) {
  const ProblemShape shape = as_served(spec, {.has_device_lengths = true});
  return std::visit([&]<class Config>(const Config&) { return Family<Config>::suits(shape); }, config);
}

double estimated_cycles(const Case& problem, const ProblemShape& shape, const KernelConfig& config) {
  return std::visit(
      [&]<class Config>(const Config& own) -> double { return Family<Config>::cycles(problem, shape, own); },
      config);
}

std::size_t family_form(const KernelConfig& config) {
  const bool has_kernel_ahead = std::visit(
      []<class Config>(const Config& own) {
        if constexpr (requires { Family<Config>::has_kernel_ahead(own); })
          return Family<Config>::has_kernel_ahead(own);
        return false;
      },
      config);
  return config.index() + (has_kernel_ahead ? std::variant_size_v<KernelConfig> : 0);
}

double model_error(const KernelConfig& config) {
  return std::visit([]<class Config>(const Config&) { return model_error<Config>(); }, config);
}

std::optional<KernelConfig> config_for(const KernelConfig& config, Requests requests) {
  return std::visit(
      [&]<class Config>(Config own) -> std::optional<KernelConfig> {
        if constexpr (requires { Family<Config>::part; }) {
          if (requests != Requests::all && requests != Family<Config>::part) return std::nullopt;
          own.requests = requests;
          return own;
        }
        return requests == Requests::all ? std::optional<KernelConfig>(own) : std::nullopt;
      },
      config);
}

bool is_of_two(const KernelConfig& config) { return config_for(config, Requests::all) != config; }

bool may_spill(const KernelConfig& config) {
  return std::visit([]<class Config>(const Config&) { return Family<Config>::may_spill; }, config);
}

bool need_alike_registers(const KernelConfig& a, const KernelConfig& b) {
  return agree(a, b, Affects::registers);
}

bool are_near_copies(const KernelConfig& a, const KernelConfig& b) { return agree(a, b, Affects::tiling); }

bool are_near_copies(const PlanConfigs& a, const PlanConfigs& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const KernelConfig& x, const KernelConfig& y) { return are_near_copies(x, y); });
}

Program write_program(const AttentionSpec& spec, const KernelConfig& config) {
  return std::visit([&]<class Config>(const Config& own) { return Family<Config>::program(spec, own); },
                    config);
}

}  // namespace jit
